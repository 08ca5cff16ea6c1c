"""Exponential methods on numbers: the linear part of the reverse process is solved exactly, the prediction by a polynomial.

Write lambda = log(alpha/sigma), h = lambda_s - lambda_t > 0.  In x_0-form the reverse SDE with stochasticity eta,
drift -f + (1 + eta^2)/2 g^2 score and diffusion eta g (eta = 0: the probability flow, eta = 1: the reversal), has

    x_s = e^{-eta^2 h} sigma_s/sigma_t x_t + sigma_s sqrt(1 - e^{-2 eta^2 h}) z
          + (1 + eta^2) alpha_s int_{lambda_t}^{lambda_s} e^{-(1 + eta^2)(lambda_s - lambda)} D dlambda.

An exponential method puts a polynomial through the last D's, and integrates it exactly or nearly so (`samplers.weights`):

    degree 1, eta = 0     DDIM                          degree 2, 3, eta = 0   DPM-Solver++ 2M, 3M
    degree 1, eta = 1     exact noise, Euler drift      degree 2, 3, eta = 1   their SDE forms

Its degree, the number of D's, is its order where eta = 0.  Where eta > 0 the order, now of the law, is 2 at most: within a
step D fluctuates with that step's noise, of which the last D's know nothing.  A line through two of them carries on the
fluctuation of the step before, whose covariance with the state is the same up to order 2; a third D does not better that.

`UniPC` corrects each step once the next D is known.  Where lambda is infinite (alpha_t = 0, or sigma_s = 0) a step is taken
by DDIM, which needs no lambda.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from unnoise.samplers.coefficients import Change, Coefficients, Moments
from unnoise.samplers.linear import Eta
from unnoise.samplers.multistep import Multistep
from unnoise.samplers.weights import RULES, Rule, exact


class Exponential(Multistep):
    """A polynomial through the last `order` clean predictions in lambda, integrated by a rule of `samplers.weights`.

    With eta > 0 and order 3 it is of order 2 only, and says so: D fluctuates with the noise within a step (see above).
    """

    def __init__(self, order: int = 2, eta: Eta = 0.0, rule: str = "exact", clean: Change | None = None, **options: Any):
        if order not in (1, 2, 3):
            raise ValueError(f"order = {order}: choose 1, 2 or 3")
        super().__init__(order, eta, clean, **options)
        self.rule = named_rule(rule)
        if rule == "published":
            self.order, self.twice = min(self.order, 2), False

    def row(self, m, i, known):
        past = [i - n for n in range(known)]
        if not self.single:
            return self.through(m, i, past, rule=self.rule)
        return self.single_step(m, i, past)

    def single_step(self, m: Moments, i: Tensor, past: list[Tensor]) -> Coefficients:
        """From the last of the points.  Of three, by the line through the outer two.

        The middle one is the worst, as it comes from a step of order 1, and with all as far apart the polynomial through
        them has no weight there.
        """
        ends = past[:: max(1, len(past) - 1)]
        right = self.through(m, i, ends[::-1], past[-1], self.rule if len(past) < 3 else exact)
        first, *rest = right.weights
        middle = [torch.zeros_like(first)] * (len(past) - len(ends))
        return Coefficients(right.keep, (*rest, *middle, first))

    def through(self, m, i, points, since=None, rule: Rule = exact):
        start = i if since is None else since
        now, then, eta = m.log_snr[start], m.log_snr[i + 1], self.amount(m, i)
        h, k = then - now, eta**2
        weights = rule([(m.log_snr[j] - now) / h for j in points], (1 + k) * h)
        return Coefficients(
            torch.exp(-k * h) * m.sigma[i + 1] / m.sigma[start],
            tuple(m.alpha[i + 1] * weight for weight in weights),
            m.sigma[i + 1] * (-torch.expm1(-2 * k * h)).sqrt() if self.draws else None,
        )


def named_rule(name: str) -> Rule:
    if name not in RULES:
        raise ValueError(f"rule = {name!r}: choose from {', '.join(RULES)}")
    return RULES[name]


class DPMSolverPP(Exponential):
    """DPM-Solver++: 2M by default, 3M with order=3; `sde=True`: their SDE forms, of order 2 at most.

    `rule` is "midpoint", for 2M the published one, or "exact", or for 3M "published", of order 2 (`samplers.weights`).
    `single=True` takes single steps, 2S and 3S: `order` steps of the grid are one, whose inner states are taken back; of a
    number that `order` does not divide the last ones are a shorter step, of lower order.
    """

    def __init__(
        self,
        order: int = 2,
        sde: bool = False,
        rule: str = "midpoint",
        single: bool = False,
        lower_final: bool | None = None,
        start_again: bool = True,
        clean: Change | None = None,
    ):
        options = {"single": single, "lower_final": lower_final, "start_again": start_again}
        super().__init__(order, 1.0 if sde else 0.0, rule, clean, **options)


class UniPC(Exponential):
    """A predictor through the last order - 1 clean predictions, corrected through one more once the next is known.

    The correction takes no further call: the prediction at the uncorrected state serves both.  The last step has none, nor
    has one whose end a callback has changed: the run goes on from there.
    (UniPC-p, a predictor of order p, is UniPC(p + 1) here: the corrected method has that order.)

    `rule` is "midpoint" (`samplers.weights`), or one as published: "bh2", "bh1" (B(h) = 1 - e^{-h} or h), or "exact".
    """

    twice_above = 3  # the corrector makes the first step of order 2

    def __init__(
        self,
        order: int = 3,
        rule: str = "midpoint",
        lower_final: bool | None = None,
        start_again: bool = True,
        clean: Change | None = None,
    ):
        if order not in (2, 3, 4):
            raise ValueError(f"order = {order}: the corrector adds one to the predictor's, so choose 2, 3 or 4")
        Multistep.__init__(self, order, 0.0, clean, lower_final=lower_final, start_again=start_again)
        self.rule = named_rule(rule)
        self.goes_back, self.by_rows = True, False

    @property
    def predictor_degree(self):
        return self.degree - 1

    def remade(self, m, device):
        rows = self.laid_out(self.known(m), partial(self.correction, m), device)
        return [None, *[row if row.weights else None for row in rows[:-1]]]

    def correction(self, m: Moments, i: Tensor, known: int) -> Coefficients:
        """The steps i again, through their ends and the predictions known before; those of DDIM stay as they are."""
        if known == 0:
            return Coefficients(0.0 * m.times[i], ())
        if known > 1:
            return self.through(m, i, [i + 1 - n for n in range(known + 1)])
        right = self.through(m, i, [i, i + 1], rule=self.rule)  # a rule's first point is the step's start
        return Coefficients(right.keep, right.weights[::-1])
