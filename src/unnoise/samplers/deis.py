"""Multistep methods on the noise: the last eps as a polynomial, integrated against d(sigma/alpha).

    x_s = alpha_s/alpha_t x_t + alpha_s int eps drho,     rho = sigma/alpha,  eps = (x - alpha D)/sigma

The polynomial is one in log rho or t (DEIS), or in rho itself (LMS, linear multistep: Adams-Bashforth in the variables of
EDM).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from unnoise.samplers.coefficients import Change, Coefficients, Moments, combined, gaussian_of
from unnoise.samplers.multistep import Multistep, MultistepTables, Past
from unnoise.samplers.weights import NODES, WEIGHTS, lagrange


@dataclass(frozen=True)
class NoiseTables(MultistepTables):
    """Beside the method's: which steps are those of DDIM, and how eps is read from x and D."""

    ends: list[bool] | None = None
    noise: list[Coefficients] | None = None


class DEIS(Multistep):
    """The last `order` eps as a polynomial in log rho, in t or in rho (`over`).

    Where rho = 0 or is infinite, log rho is not: a step there is one of DDIM, but for polynomials in rho, which reach rho =
    0.
    """

    def __init__(
        self,
        order: int = 3,
        over: str = "log-rho",
        lower_final: bool | None = None,
        start_again: bool = True,
        clean: Change | None = None,
    ):
        if order not in (1, 2, 3, 4):
            raise ValueError(f"order = {order}: choose 1 to 4")
        if over not in ("log-rho", "t", "rho"):
            raise ValueError(f"over = {over!r}: choose log-rho, t or rho")
        super().__init__(order, 0.0, clean, lower_final=lower_final, start_again=start_again)
        self.over = over

    def finite(self, m):
        return m.finite if self.over != "rho" else (m.alpha.reshape(len(m.times), -1) > 0).all(1).tolist()

    def through(self, m, i, points, since=None):
        """The weights are those of eps.  At the ends, where lambda is infinite, a step of DDIM: its weight is that of D."""
        start, extra = i if since is None else since, [1] * (m.alpha.ndim - 1)
        v = {"t": m.times.reshape(-1, *extra), "log-rho": -m.log_snr, "rho": m.sigma / m.alpha}[self.over]
        length = v[i + 1] - v[start]
        at = v[start] + 0.5 * (NODES + 1).reshape(-1, *[1] * v.ndim) * length
        kernel = 0.5 * WEIGHTS.reshape(-1, *[1] * v.ndim) * length * self.slope(m, at)
        basis = lagrange([v[j] for j in points], at)
        return Coefficients(m.alpha[i + 1] / m.alpha[start], tuple(m.alpha[i + 1] * (kernel * b).sum(0) for b in basis))

    def slope(self, m: Moments, at: Tensor) -> Tensor:
        """The derivative of rho by the variable."""
        if self.over != "t":
            return at.exp() if self.over == "log-rho" else torch.ones_like(at)
        t = at.reshape(at.shape[:2])
        return -0.5 * m.schedule.d_log_snr(t) * m.schedule.sigma(t) / m.schedule.alpha(t)

    def tables(self, problem):
        own, m = super().tables(problem), Moments(gaussian_of(problem.process, type(self).__name__).schedule, problem.times)
        ends = [not known for known in self.known(m)]
        noise = Coefficients(1 / m.sigma, (-m.alpha / m.sigma,)).split(problem.device)
        return NoiseTables(own.table, own.reader, own.covariance, own.start, own.again, own.held, ends, noise)

    def stage(self, problem, tables, prediction, state, i, k, noise):
        if self.degree > 1 and not tables.ends[i]:
            return super().stage(problem, tables, prediction, state, i, k, noise)
        x, memory = state.x, state.memory
        clean = tables.reader.clean(prediction, x, i)
        value = combined(tables.noise[i], x, (clean,))
        if memory is not None:
            memory = Past(x, (value, *memory.values)[: self.degree])
        return state.to(combined(tables.table[i], x, (clean if tables.ends[i] else value,)), memory)

    def read(self, tables, prediction, x, i):
        return combined(tables.noise[i], x, (tables.reader.clean(prediction, x, i),))

    def reading(self, tables, prediction, x, i):
        return self.read(tables, prediction, x, i), None


class LMS(DEIS):
    """Linear multistep in the variables of EDM, y = x/alpha over rho: the last eps = dy/drho as a polynomial in rho."""

    def __init__(
        self, order: int = 4, lower_final: bool | None = None, start_again: bool = True, clean: Change | None = None
    ):
        super().__init__(order, "rho", lower_final, start_again, clean)
