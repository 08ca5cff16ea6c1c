"""Exponential methods on numbers: the linear part of the reverse process is solved exactly, the prediction by a polynomial.

Write lambda = log(alpha/sigma), h = lambda_s - lambda_t > 0.  In x_0-form the reverse SDE with stochasticity eta,
drift -f + (1 + eta^2)/2 g^2 score and diffusion eta g (eta = 0: the probability flow, eta = 1: the reversal), has

    x_s = e^{-eta^2 h} sigma_s/sigma_t x_t + sigma_s sqrt(1 - e^{-2 eta^2 h}) z
          + (1 + eta^2) alpha_s int_{lambda_t}^{lambda_s} e^{-(1 + eta^2)(lambda_s - lambda)} D dlambda.

An exponential method puts a polynomial through the last D's and integrates it exactly:

    degree 1, eta = 0     DDIM                          degree 2, 3, eta = 0   DPM-Solver++ 2M, 3M
    degree 1, eta = 1     exact noise, Euler drift      degree 2, 3, eta = 1   their SDE forms

Its degree, the number of D's, is its order where eta = 0.  Where eta > 0 the order, now of the law, is 2 at most: within a
step D fluctuates with that step's noise, of which the last D's know nothing.  A line through two of them carries on the
fluctuation of the step before, whose covariance with the state is the same up to order 2; a third D does not better that.

`UniPC` corrects each step once the next D is known.  `DEIS` does the same as DPM-Solver++ with eps in place of D, as a
polynomial in t.  Where lambda is infinite (alpha_t = 0, or sigma_s = 0) a step is taken by DDIM, which needs no lambda.
"""

from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from unnoise.samplers.coefficients import Coefficients, Moments, combined, gaussian_of
from unnoise.samplers.linear import LinearMethod, LinearTables, Past

FIRST = torch.tensor([0])  # the first step, as a list of steps
NODES, WEIGHTS = (torch.as_tensor(a) for a in np.polynomial.legendre.leggauss(32))


def lagrange(points: list[Tensor], at: Tensor) -> list[Tensor]:
    """The cardinal polynomials of the points, at other places."""
    out = []
    for j, p in enumerate(points):
        value = torch.ones_like(at)
        for k, q in enumerate(points):
            if k != j:
                value = value * (at - q) / (p - q)
        out.append(value)
    return out


class Exponential(LinearMethod):
    """A polynomial through the last `order` clean predictions in lambda, integrated exactly.

    With eta > 0 and order 3 it is of order 2 only, and says so: D fluctuates with the noise within a step (see above).
    """

    def __init__(self, order: int = 2, eta: float = 0.0):
        if order not in (1, 2, 3):
            raise ValueError(f"order = {order}: choose 1, 2 or 3")
        if not eta >= 0:
            raise ValueError(f"eta = {eta:g} must not be negative")
        super().__init__(order, min(order, 2) if eta else order, eta)

    def known(self, m):
        return reach(m, self.degree)

    def row(self, m, i, known):
        return self.through(m, i, [i - n for n in range(known)])

    def start(self, m):
        return self.through(m, FIRST, [FIRST + 1, FIRST]) if m.finite[0] and m.finite[1] else None

    def through(self, m: Moments, i: Tensor, points: list[Tensor]) -> Coefficients:
        """The steps i, each with the polynomial through the values at these times of the grid."""
        now, then, k = m.log_snr[i], m.log_snr[i + 1], self.eta**2
        h = then - now
        u = 0.5 * (NODES + 1).reshape(-1, *[1] * h.ndim)
        at = now + u * h
        kernel = (1 + k) * (0.5 * WEIGHTS).reshape(u.shape) * h * torch.exp((at - then) * (1 + k))
        basis = lagrange([m.log_snr[j] for j in points], at)
        noise = m.sigma[i + 1] * (-torch.expm1(-2 * k * h)).sqrt() if k else None
        return Coefficients(
            torch.exp(-k * h) * m.sigma[i + 1] / m.sigma[i],
            tuple(m.alpha[i + 1] * (kernel * b).sum(0) for b in basis),
            noise,
        )


def reach(m: Moments, most: int) -> list[int]:
    """How many predictions each step may use, back to where lambda is infinite; 0 where it is so at one of its ends."""
    out, behind = [], 0
    for here, ahead in pairwise(m.finite):
        behind = behind + 1 if here else 0
        out.append(min(behind, most) if ahead else 0)
    return out


class DPMSolverPP(Exponential):
    """DPM-Solver++ in its multistep form: 2M by default, 3M with order=3; `sde=True`: SDE forms, of order 2 at most."""

    def __init__(self, order: int = 2, sde: bool = False):
        super().__init__(order, 1.0 if sde else 0.0)


@dataclass(frozen=True)
class CorrectedTables(LinearTables):
    """Beside the predictor's: the coefficients of each step made again."""

    corrected: list[Coefficients]


@dataclass(frozen=True)
class Redone(Past):
    """Beside the past: where the predictor led, by which states are known that were put in its place."""

    led: Tensor | None = None


class UniPC(Exponential):
    """A predictor through the last order - 1 clean predictions, corrected through one more once the next is known.

    The correction takes no further call: the prediction at the uncorrected state serves both.  The last step has none, nor
    has one whose end a callback has changed: the run goes on from there.
    """

    def __init__(self, order: int = 3):
        super().__init__(order)
        if order < 2:
            raise ValueError(f"order = {order}: the corrector adds one to the predictor's, so choose 2 or 3")

    def start(self, m):
        return None  # the corrector makes the first step of order 2

    def known(self, m):
        """The predictor's."""
        return reach(m, self.degree - 1)

    def calls(self, steps, process):
        return steps

    def tables(self, problem):
        own, m = super().tables(problem), Moments(gaussian_of(problem.process, type(self).__name__).schedule, problem.times)
        corrected = self.laid_out(reach(m, self.degree - 1), partial(self.correction, m), problem.device)
        return CorrectedTables(own.table, own.start, own.reader, corrected)

    def correction(self, m: Moments, i: Tensor, known: int) -> Coefficients:
        """The steps i again, through their ends and the predictions known before; those of DDIM stay as they are."""
        return self.through(m, i, [i + 1 - n for n in range(known + 1)]) if known else Coefficients(0.0 * m.times[i], ())

    def memory(self, problem, tables, x):
        return Redone()

    def stage(self, problem, tables, prediction, state, i, k, noise):
        x, memory = state.x, state.memory
        past = (self.read(tables, prediction, x, i), *memory.values)
        again = tables.corrected[i - 1] if i else None
        if again is not None and again.weights:
            x = as_left(x, memory.led, combined(again, memory.x, past))
        led = combined(tables.table[i], x, past)
        return state.to(led, Redone(x, past[: self.degree], led))


def as_left(x: Tensor, led: Tensor, corrected: Tensor) -> Tensor:
    """Corrected, but for the rows that are no longer where the predictor led."""
    if x is led:
        return corrected
    changed = (x != led).reshape(len(x), -1).any(1)
    return torch.where(changed.reshape(-1, *[1] * (x.ndim - 1)), x, corrected)


@dataclass(frozen=True)
class NoiseTables(LinearTables):
    """Beside the method's: which steps are those of DDIM, and how eps is read from x and D."""

    ends: list[bool]
    noise: list[Coefficients]


class DEIS(LinearMethod):
    """Exponential Adams-Bashforth: the last eps as a polynomial in t, integrated against d(sigma/alpha).

    x_s = alpha_s/alpha_t x_t + alpha_s int eps d(sigma/alpha),     eps = (x - alpha D)/sigma
    """

    def __init__(self, order: int = 3):
        if order not in (1, 2, 3):
            raise ValueError(f"order = {order}: choose 1, 2 or 3")
        super().__init__(order)

    def known(self, m):
        return reach(m, self.degree)

    def row(self, m, i, known):
        """The weights are those of eps.  At the ends, where lambda is infinite, a step of DDIM: its weight is that of D."""
        return self.through(m, i, [i - n for n in range(known)])

    def start(self, m):
        return self.through(m, FIRST, [FIRST + 1, FIRST]) if m.finite[0] and m.finite[1] else None

    def through(self, m: Moments, i: Tensor, points: list[Tensor]) -> Coefficients:
        t, s, schedule = m.times[i], m.times[i + 1], m.schedule
        at = t + 0.5 * (NODES.unsqueeze(1) + 1) * (s - t)
        ratio = schedule.sigma(at) / schedule.alpha(at)
        slope = -0.5 * schedule.d_log_snr(at) * ratio  # d(sigma/alpha)/dt
        extra = [1] * (slope.ndim - 2)
        kernel = (0.5 * WEIGHTS.unsqueeze(1) * (s - t)).reshape(*at.shape, *extra) * slope
        basis = [b.reshape(*at.shape, *extra) for b in lagrange([m.times[j] for j in points], at)]
        return Coefficients(m.alpha[i + 1] / m.alpha[i], tuple(m.alpha[i + 1] * (kernel * b).sum(0) for b in basis))

    def tables(self, problem):
        own, m = super().tables(problem), Moments(gaussian_of(problem.process, type(self).__name__).schedule, problem.times)
        ends = [not known for known in self.known(m)]
        noise = Coefficients(1 / m.sigma, (-m.alpha / m.sigma,)).split(problem.device)
        return NoiseTables(own.table, own.start, own.reader, ends, noise)

    def stage(self, problem, tables, prediction, state, i, k, noise):
        if self.degree > 1 and not tables.ends[i]:
            return super().stage(problem, tables, prediction, state, i, k, noise)
        x, memory = state.x, state.memory
        clean = tables.reader.clean(prediction, x, i)
        value = combined(tables.noise[i], x, (clean,))
        if memory is not None:
            memory = replace(memory, values=(value, *memory.values)[: self.degree])
        return state.to(combined(tables.table[i], x, (clean if tables.ends[i] else value,)), memory)

    def read(self, tables, prediction, x, i):
        return combined(tables.noise[i], x, (tables.reader.clean(prediction, x, i),))
