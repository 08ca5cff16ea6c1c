"""The likelihood through the probability flow.

Along the flow dx/dt = u(x, t) the density that it carries obeys d log p_t(x_t)/dt = -tr du/dx, so

    log p_eps(x) = log p_1(x_1) + int_eps^1 tr (du/dx)(x_t, t) dt,    x_eps = x     (eq:exact-likelihood-main),

with x_1 the end of the flow that starts from x at the cutoff eps, where the data carries noise of size sigma_eps.  This is
the flow's density.  It is that of the reverse process, and of the noised data, only where the network is exact and p_1 is
the law of x_1: with alpha_1 > 0 the prior alone is off by some hundredths of a nat.

The trace is exact, one vector-Jacobian product per coordinate, or Hutchinson's: with probes z of mean 0 and covariance I

    E[z^T J z] = tr J,    Var = 2 sum_{i != j} S_ij^2   (Rademacher),    2 sum_ij S_ij^2   (Gaussian),    S = (J + J^T)/2,

one product per probe.  A row keeps its probes for the whole way, so each probe's integral is a number of its own, and all
of them are unbiased: their spread is the error of their mean.  One probe alone does not tell it.

What a local error (delta_x, delta_l) of a step that ends at (x, t) does to the answer is, to first order,

    delta_l + grad log p_t(x) . delta_x,

for from there on the answer is the log-density log p_t(x) itself.  The score is in u already and costs nothing.  The sizes
of the two terms together are held below atol per coordinate in every step; their sum over steps is the solver's part of the
error.  It is an estimate for short steps, there too large (it is the error of the fourth order, and the fifth is kept).  Of
440 points of a mixture it covers the true error of 99 in 100 from tolerances of 1e-5 on (1.3 of it at worst); for 9 in 10
it falls short by a factor of 2 at most at 1e-4 and of 6 at 1e-3, and at the worst points by 15.
"""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from unnoise.denoiser import AnyDenoiser
from unnoise.likelihoods.base import Likelihood, LikelihoodInfo
from unnoise.noise import NoiseSource
from unnoise.objectives.leaves import leaves_of
from unnoise.predictions import score_of_flow
from unnoise.processes import CoxIngersollRoss, Gaussian, HeatProcess, Process, WrightFisher
from unnoise.samplers.adaptive import FlowField, no_flow
from unnoise.samplers.runge_kutta import RungeKutta, row_sum
from unnoise.shapes import Float, Tree
from unnoise.tree import batch_size


class ProbabilityFlow(Likelihood):
    """log p of the probability flow at the time `cutoff` (the process's own unless given), from the prior at `end`.

    `trace` is "exact" (for few coordinates) or "hutchinson" with `probes` of a kind of `probe`, "rademacher" or "gaussian".
    `prior` is a function x -> log density at `end`; the process's own unless given.  States and sums are float64; the
    network is asked in the precision of the data.

    `info.error` is the solver's estimate, and with two probes or more one standard error of their mean on top (Student's t
    with probes - 1 degrees of freedom).  With one probe it is None: nothing tells the error of the trace.
    """

    def __init__(
        self,
        trace: str = "exact",
        probes: int = 1,
        probe: str = "rademacher",
        rtol: float = 1e-6,
        atol: float = 1e-6,
        cutoff: float | None = None,
        prior: Callable[[Tree], Tensor] | None = None,
        end: float = 1.0,
        maximum: int = 10_000,
    ):
        if trace not in ("exact", "hutchinson"):
            raise ValueError(f"trace = {trace!r}: choose 'exact' or 'hutchinson'")
        if probe not in ("rademacher", "gaussian"):
            raise ValueError(f"probe = {probe!r}: choose 'rademacher' or 'gaussian'")
        if probes < 1:
            raise ValueError(f"probes = {probes}: at least one is needed")
        if trace == "exact" and probes != 1:
            raise ValueError(f"probes = {probes} with an exact trace, which has none: pass trace='hutchinson'")
        self.trace, self.probes, self.probe, self.rtol, self.atol = trace, probes, probe, rtol, atol
        self.cutoff, self.prior, self.end, self.maximum = cutoff, prior, end, maximum

    def refuse(self, process: Process) -> str | None:
        return no_flow(process, type(self).__name__)

    @torch.no_grad()
    def log_prob(
        self, denoiser: AnyDenoiser, x0: Tree, noise: NoiseSource, condition: dict[str, Any]
    ) -> tuple[Float[Tensor, "batch"], LikelihoodInfo]:
        process = denoiser.process.base
        why = self.refuse(process)
        if why:
            raise TypeError(why)
        x0, cutoff = process.state_space.check(x0, "x0"), self._start(process)
        estimated = "" if self.trace == "exact" else f", its trace by {self.probes} {self.probe} probe(s)"
        info = LikelihoodInfo(
            f"the probability flow's density at t = {cutoff:g}{estimated}",
            estimated=self.trace != "exact",
            dimension=process.space.dimension,
        )
        field = FlowField(denoiser, x0, (cutoff, self.end), condition, info)
        x = field.flat(x0).double()
        d = x.shape[1]  # on a sphere one more than its dimension
        if not batch_size(x0):
            return x.new_zeros(0), info
        function, parts = self._augmented(field, d, self._probes(noise, d)), (d, self.probes)
        method = RungeKutta(
            function, self.rtol, self.atol, parts, self._watch(field, d), watch_atol=d * self.atol, maximum=self.maximum
        )
        start = method.start(torch.cat([x, x.new_zeros(len(x), self.probes)], 1), cutoff, self.end)
        state = method.to(start, cutoff, self.end)
        last, integrals = state.y[:, :d], state.y[:, d:]
        mean = row_sum(integrals) / self.probes
        if self.trace == "exact":
            info.error = state.error
        elif self.probes > 1:
            spread = row_sum((integrals - mean.unsqueeze(1)).square()) / (self.probes - 1)
            info.error = state.error + (spread / self.probes).sqrt()
        return self._log_prior(process, field, last) + mean, info

    def _start(self, process: Process) -> float:
        cutoff = process.cutoff if self.cutoff is None else self.cutoff
        if not 0 <= cutoff < self.end <= 1:
            raise ValueError(
                f"cutoff = {cutoff:g}, end = {self.end:g}: the flow runs from data to noise, 0 <= cutoff < end <= 1"
            )
        if any(bool((leaf.schedule.sigma(cutoff) <= 0).any()) for leaf in _numbers(process)):
            raise ValueError(f"sigma = 0 at the cutoff {cutoff:g}, where the data has no density under the noise: raise it")
        return cutoff

    def _probes(self, noise: NoiseSource, d: int) -> list[Tensor]:
        """The probes of each row, [batch, d]; none for an exact trace."""
        if self.trace == "exact":
            return []
        sources = [noise.at("probe", j) for j in range(self.probes)]
        if self.probe == "gaussian":
            return [source.normal((d,)) for source in sources]
        return [torch.where(source.uniform((d,)) < 0.5, -1.0, 1.0).double() for source in sources]

    def _augmented(self, field: FlowField, d: int, probes: list[Tensor]) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        """(u, z^T J z for each probe), or (u, tr J): one evaluation of u, and a vector-Jacobian product for each term."""
        dtype = field.flat(field.like).dtype

        def function(y: Tensor, t: Tensor, rows: Tensor) -> Tensor:
            finite = y.isfinite().all(1, keepdim=True)  # a trial step may overflow: it is rejected, and not shown around
            with torch.inference_mode(False), torch.enable_grad():
                x = torch.where(finite, y[:, :d], 0.0).to(dtype).detach().clone().requires_grad_()
                u = field.velocity(x, t, rows)
                if probes:
                    terms = [row_sum((_product(u, x, z[rows].to(u.dtype)) * z[rows]).double()) for z in probes]
                else:
                    basis = torch.eye(d, dtype=u.dtype, device=u.device)
                    diagonal = [_product(u, x, e.expand_as(u))[:, i] for i, e in enumerate(basis)]
                    terms = [row_sum(torch.stack(diagonal, 1).double())]
            out = torch.cat([u.detach().double(), torch.stack(terms, 1)], 1)
            return torch.where(finite, out, torch.nan)

        return function

    def _watch(self, field: FlowField, d: int) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
        """|score . delta_x| + |delta_l|."""

        def watch(y: Tensor, t: Tensor, slope: Tensor, delta: Tensor) -> Tensor:
            def score(process: Process, x: Tensor, u: Tensor) -> Tensor:
                value = score_of_flow(process, x, u, t)
                return torch.where(value.isfinite(), value, 0.0)  # the flow says nothing of it where no noise is added

            along = row_sum(field.each(score, y[:, :d], slope[:, :d]) * delta[:, :d])
            return along.abs() + (row_sum(delta[:, d:]) / self.probes).abs()

        return watch

    def _log_prior(self, process: Process, field: FlowField, last: Float[Tensor, "batch d"]) -> Float[Tensor, "batch"]:
        x = field.tree(last, rounded=False)
        if self.prior is not None:
            return self.prior(x).double()
        return process.prior(len(last), torch.float64, last.device).log_prob(x)


def _product(u: Tensor, x: Tensor, z: Tensor) -> Tensor:
    """z^T du/dx."""
    if not u.requires_grad:
        return torch.zeros_like(x)
    return torch.autograd.grad(u, x, z, retain_graph=True, materialize_grads=True)[0]


def _numbers(process: Process) -> list[Gaussian | HeatProcess | WrightFisher | CoxIngersollRoss]:
    """The leaves, all of which have a flow: others are refused."""
    return [cast(Gaussian | HeatProcess | WrightFisher | CoxIngersollRoss, leaf) for _, leaf in leaves_of(process)]
