"""DDIM for categories (Song et al. 2021, appendix A): kernels with the process's marginals that are not its reversal.

Noise with one law p for all times has q(x_t | x_0) = alpha_t e_{x_0} + beta_t p, beta = 1 - alpha.  For any sigma in
[0, sigma_max], sigma_max = beta_s/beta_t (alpha_s/alpha_t, the other limit, is at least 1 and never binds),

    q(x_s | x_t, x_0) = sigma e_{x_t} + (alpha_s - sigma alpha_t) e_{x_0} + (beta_s - sigma beta_t) p

has the process's own q(x_s | x_0): average over x_t, and sigma alpha_t e_{x_0} and sigma beta_t p cancel.  It is linear in
e_{x_0}, so the model's kernel has the raw posterior q(x_0^k | x_t) there, exactly.  With kappa the share of sigma_max,

    sigma = kappa beta_s/beta_t,    fresh = (1 - kappa) beta_s,    clean = 1 - sigma - fresh,
    kappa = (1 - eta) e^{-rate (t - s)}.

eta = 0, rate = 0 keeps as much of x_t as can be: nothing is noised again, a coordinate keeps its value or takes x_0.  As
steps shrink it jumps to y at rate -alpha'/(1 - alpha) q(x_0^k = y | x_t).  eta = 1 draws x_0 and noises it afresh to s.

The reversal is another kernel.  It asks whether x_t is x_0 (eq:reversal-interpolation-zheng): where it is not, it puts
(1 - alpha_{t|s}) beta_s/beta_t on p, where it is, (1 - alpha_{t|s}) beta_s p(x_t)/(alpha_t + beta_t p(x_t)); here p has the
same share in both cases.  Only under masking is the reversal a member: the first case puts it on MASK, which is x_t, and the
second puts nothing there, so that eta = 0 is the reversal.  There eta > 0 remasks with probability eta (1 - alpha_s).

In law.  Exact for one coordinate, whatever kappa.  For several, coordinates move independently given x_t, which costs the
square of the probability that one moves in a step.  That is O(h) for eta = 0 and any `rate`: order 1.  With eta > 0 a share
eta of all coordinates is drawn anew in every step, however short: no order, and more steps do not help.
"""

from math import inf

import torch
from torch import Tensor

from unnoise.laws import Categorical, log_of
from unnoise.noise import NoiseSource
from unnoise.predictions import Prediction, RawPosterior
from unnoise.processes import FiniteProcess, FixedNoise, Process
from unnoise.samplers.base import OneStep
from unnoise.samplers.leaps import finite
from unnoise.samplers.problem import Problem, on_host
from unnoise.samplers.state import State
from unnoise.samplers.tokens import Tokens
from unnoise.shapes import Float, Int


def alpha_beta(process: FixedNoise, times: Float[Tensor, "times"]) -> tuple[Tensor, Tensor]:
    """alpha and 1 - alpha at some times, on the host, each entry shaped to go with a batch of states."""
    schedule = on_host(process.schedule)
    with torch.no_grad():
        both = schedule.alpha(times), schedule.beta(times)
    wide = (-1, *(schedule.shape or [1] * len(process.space.shape)))
    alpha, beta = (value.reshape(wide) for value in both)
    return alpha, beta


def over(a: Tensor, b: Tensor, otherwise: float) -> Tensor:
    """a/b, and `otherwise` where b is 0."""
    return torch.where(b > 0, a / torch.where(b > 0, b, 1.0), otherwise)


def raw_log_probs(prediction: Prediction, tokens: Tokens) -> Float[Tensor, "batch *shape size"]:
    """log q(x_0^k | x_t) in float64, as `tokens` changes it."""
    log_p = finite(prediction).to(RawPosterior).log_probs().double()
    return log_p if tokens.plain else tokens.log_probs(log_p.flatten(0, -2)).reshape(log_p.shape)


def refuse_other_noise(name: str, process: Process) -> str | None:
    """What rests on q(x_t | x_0) = alpha_t e_{x_0} + (1 - alpha_t) p, with the same p at all times, says so."""
    if isinstance(process, FixedNoise):
        return None
    own = type(process).__name__
    if not isinstance(process, FiniteProcess):
        return f"{name} draws categories, and {own} has none"
    return f"{name} needs one noise law for all times (Masking, Uniform, Interpolation), and {own} has none: use Ancestral"


def fixed_noise_of(process: Process, method: OneStep) -> FixedNoise:
    """The process of a run that `refuse` has let pass."""
    if not isinstance(process, FixedNoise):
        raise TypeError(refuse_other_noise(type(method).__name__, process))
    return process


class Mixed(Categorical):
    """keep e_x + clean theta + fresh p, kept as its parts; theta holds log-probabilities of x_0."""

    def __init__(self, process: FixedNoise, x: Tensor, log_theta: Tensor, keep: Tensor, clean: Tensor, fresh: Tensor):
        self.process, self.x, self.log_theta = process, x, log_theta
        self.keep, self.clean, self.fresh = (value.expand(x.shape) for value in (keep, clean, fresh))

    @property
    def log_probs(self) -> Float[Tensor, "batch *shape size"]:  # type: ignore[override]
        theta = self.process.widen(self.log_theta).exp()
        noise = self.process.noise.log_probs(torch.float64, self.x.device).exp()
        probs = self.clean.unsqueeze(-1) * theta + self.fresh.unsqueeze(-1) * noise
        return log_of(probs.scatter_add(-1, self.x.unsqueeze(-1), self.keep.unsqueeze(-1)))

    def draw(self, noise: NoiseSource) -> Int[Tensor, "batch *shape"]:
        """Whether to keep x comes before where to go."""
        shape = tuple(self.x.shape[1:])
        which = noise.at("whether").uniform(shape)
        u = noise.at("token").uniform(shape).flatten()
        clean = Tokens().draw(self.log_theta.flatten(0, -2), u).reshape(self.x.shape)
        fresh = self.process.noise.draw(self.x, noise.at("noise"))
        moved = torch.where(which < self.keep + self.clean, clean, fresh)
        return torch.where(which < self.keep, self.x, moved)


class CategoricalDDIM(OneStep):
    """Kernels with the marginals of the process that keep a share (1 - eta) e^{-rate (t - s)} of what can be kept of x_t.

    `tokens` changes the law of x_0, and leaves alone how much is kept and how much is noised.
    """

    def __init__(self, eta: float = 0.0, rate: float = 0.0, tokens: Tokens | None = None):
        if not 0 <= eta <= 1:
            raise ValueError(f"eta = {eta:g}: the share that is let go of lies in [0, 1]; 0 keeps the most of x_t")
        if not 0 <= rate < inf:
            raise ValueError(f"rate = {rate:g} must be finite and not negative: per unit of time, a share is let go of")
        self.eta, self.rate, self.tokens = eta, rate, tokens or Tokens()
        self.order = 1 if eta == 0 and self.tokens.plain else None

    def refuse(self, process: Process) -> str | None:
        return refuse_other_noise(type(self).__name__, process)

    def shares(self, process: FixedNoise, times: Float[Tensor, "times"]) -> tuple[Tensor, Tensor, Tensor]:
        """Of x_t, of x_0 and of p in every step: keep (sigma), clean and fresh, on the host."""
        _, beta = alpha_beta(process, times)
        h = (times[:-1] - times[1:]).reshape(-1, *[1] * (beta.ndim - 1))
        kappa = (1 - self.eta) * torch.exp(-self.rate * h)
        keep, fresh = kappa * over(beta[1:], beta[:-1], 1.0), (1 - kappa) * beta[1:]
        return keep, (1 - keep - fresh).clamp_min(0), fresh

    def tables(self, problem: Problem) -> Float[Tensor, "three steps *shape"]:
        process = fixed_noise_of(problem.process, self)
        return torch.stack(torch.broadcast_tensors(*self.shares(process, problem.times))).to(problem.device)

    def law(self, shares: Tensor, prediction: Prediction, x: Tensor, i: int) -> Mixed:
        process = fixed_noise_of(prediction.process, self)
        keep, clean, fresh = shares[:, i]
        return Mixed(process, x, raw_log_probs(prediction, self.tokens), keep, clean, fresh)

    def no_law(self) -> str | None:
        return None

    def step_law(self, problem: Problem, tables: Tensor, prediction: Prediction, i: int) -> Mixed:
        return self.law(tables, prediction, prediction.x_t, i)  # type: ignore[arg-type]

    def stage(
        self, problem: Problem, tables: Tensor, prediction: Prediction, state: State, i: int, k: int, noise: NoiseSource
    ) -> State:
        moved = self.law(tables, prediction, state.x, i).draw(noise)
        return state.counted(moved, state.x).to(moved)
