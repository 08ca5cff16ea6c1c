"""The order of every sampler, computed and fitted.

A method of order p has an error of c h^p on a fixed interval inside (0, 1).  Errors are computed, not drawn
(`verify.order_settings`), for several numbers of steps; the order is the slope of log error over log steps, by least squares
over the last three.  It is to be within 0.25 of the one that the sampler states.

Steps are many enough that the next power of h does not show, and few enough that the error stays well above rounding.  Some
need finer ones: with a third D the SDE form of DPM-Solver++ has an error of order 3 that is the larger one on coarse grids,
and the midpoint rule with three D's gives them their full weight in short steps only.

`CASES` has an entry for each method with an order; those that have none stand in `WITHOUT`, with the reason.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from unnoise import samplers
from unnoise.predictions import variance as variances
from unnoise.samplers import (
    DDIM,
    DEIS,
    LMS,
    AdaptiveODE,
    Ancestral,
    CategoricalDDIM,
    DetailedBalance,
    DPMSolverPP,
    Euler,
    EulerMaruyama,
    Exponential,
    FromGenerator,
    Heun,
    Langevin,
    Leaves,
    OneByOne,
    PredictorCorrector,
    Psi,
    Remasking,
    Reveal,
    Routed,
    Sampler,
    TauLeaping,
    ThetaRK2,
    ThetaTrapezoidal,
    UniPC,
)
from unnoise.samplers.remasking import Rate
from unnoise.schedules import VE
from unnoise.verify.order_settings import (
    MILD,
    Categories,
    FlowTrajectories,
    NumberAndCategory,
    Numbers,
    Setting,
    TwoNumbers,
)
from unnoise.verify.row_settings import NumberAndColumns
from unnoise.verify.rows import Place, Row

TOLERANCE, FITTED = 0.25, 3
FINE, MIDDLE, COARSE, FEW = (16, 32, 64, 128, 256), (8, 16, 32, 64, 128), (5, 10, 20), (3, 6, 12)
FINER, FINEST = (66, 132, 264, 528), (258, 516, 1032)  # multiples of 6, for single steps

WITHOUT = {
    "FirstHitting": "exact: every coordinate is revealed at its own time",
    "EntropyBounded": "a heuristic: which coordinates come first depends on their tokens",
    "Gillespie": "exact: events at their own times",
    "Uniformization": "exact: events at their own times",
    "ThinnedFlights": "exact: events at their own times, thinned",
    "Frozen": "moves nothing",
    "MultistepConsistency": "for consistency models alone, whose clean prediction is the end of a path",
    "Replacement": "approximate: a law only with many rounds of short steps",
    "Particles": "weighs the steps of another method, whose order it has",
    "Sampler": "base class",
    "Stepping": "base class",
    "OneStep": "base class",
}


@dataclass(frozen=True)
class Case:
    """A method on a problem."""

    text: str
    sampler: Sampler
    setting: Setting
    counts: tuple[int, ...]
    order: int | None = None  # where the method has another than it states, for a reason that `note` gives
    note: str = ""
    brief: bool = False

    @property
    def stated(self) -> int:
        order = self.sampler.order if self.order is None else self.order
        assert order is not None
        return order

    @property
    def label(self) -> str:
        return f"{self.text}, {self.note}" if self.note else self.text

    def points(self) -> list[tuple[int, float]]:
        """Steps and errors."""
        return [(n, self.setting.error(self.sampler, n)) for n in self.counts]


def slope(points: list[tuple[int, float]]) -> float:
    """The order, by least squares in logarithms; NaN where an error is 0 or no number."""
    if not all(0 < error < math.inf for _, error in points):
        return math.nan
    x, y = ([math.log(p[k]) for p in points] for k in (0, 1))
    x_mean, y_mean = sum(x) / len(x), sum(y) / len(y)
    covariance = sum((a - x_mean) * (b - y_mean) for a, b in zip(x, y, strict=True))
    return -covariance / sum((a - x_mean) ** 2 for a in x)


def row_of(case: Case, points: list[tuple[int, float]]) -> Row:
    setting, fitted = case.setting, slope(points[-FITTED:])
    place = Place(setting.process, setting.prediction, case.label)
    return place.row(setting.quantity, case.stated, fitted, abs(fitted - case.stated), TOLERANCE)


def flows() -> Iterator[Case]:
    on = FlowTrajectories()
    yield Case("DDIM()", DDIM(), on, FINE)
    yield Case("EulerMaruyama(eta=0)", EulerMaruyama(eta=0.0), on, FINE)
    for order in (1, 2, 3):
        yield Case(f"Exponential({order})", Exponential(order), on, FINE)
    for order in (2, 3):
        yield Case(f"DPMSolverPP({order})", DPMSolverPP(order), on, FINE if order < 3 else FINER, brief=True)
    for order in (2, 3):
        yield Case(f"DPMSolverPP({order}, single=True)", DPMSolverPP(order, single=True), on, FINER)
    for order in (2, 3, 4):
        yield Case(f"UniPC({order})", UniPC(order), on, FINE if order < 4 else FINEST)
    for order in (1, 2, 3, 4):
        yield Case(f"DEIS({order})", DEIS(order), on, (FINE, FINE, FINER, FINEST)[order - 1])
    for order in (3, 4):
        yield Case(f"LMS({order})", LMS(order), on, FINER if order < 4 else FINEST)
    yield Case("Heun()", Heun(), on, FINE)
    loose = AdaptiveODE(rtol=1e6, atol=1e6)  # no step is cut: each is one from time to time of the grid
    yield Case("AdaptiveODE()", loose, FlowTrajectories(schedule=VE(0.01, 10.0)), (4, 8, 16, 32), note="even steps")


def laws_of_numbers() -> Iterator[Case]:
    for eta in (0.5, 1.0):
        yield Case(f"DDIM(eta={eta:g})", DDIM(eta), Numbers(eta), MIDDLE, brief=eta == 1)
    for eta in (0.5, 1.0):
        yield Case(f"EulerMaruyama(eta={eta:g})", EulerMaruyama(eta), Numbers(eta), MIDDLE)
    yield Case("Exponential(1, eta=1)", Exponential(1, eta=1.0), Numbers(1.0), MIDDLE)
    yield Case("Exponential(2, eta=0.5)", Exponential(2, eta=0.5), Numbers(0.5), FINE)
    yield Case("DPMSolverPP(2, sde=True)", DPMSolverPP(2, sde=True), Numbers(1.0), FINE, brief=True)
    yield Case("DPMSolverPP(3, sde=True)", DPMSolverPP(3, sde=True), Numbers(1.0), (128, 256, 512))
    yield Case("Heun(churn=4)", Heun(churn=4.0), Numbers(), MIDDLE)
    yield Case("Ancestral()", Ancestral(), Numbers(1.0, variances.PosteriorVariance()), MIDDLE, note="Posterior")
    yield Case("Ancestral()", Ancestral(), Numbers(1.0, variances.ForwardVariance()), MIDDLE, note="Forward")
    yield Case("Ancestral(2)", Ancestral(2), Numbers(), MIDDLE)
    yield Case("PredictorCorrector(Ancestral(), Langevin())", PredictorCorrector(Ancestral(), Langevin()), Numbers(), MIDDLE)
    yield Case("PredictorCorrector(DDIM(), Langevin())", PredictorCorrector(DDIM(), Langevin()), Numbers(), MIDDLE)
    for theta, text in ((None, "FromGenerator()"), (0.5, "FromGenerator(0.5)")):
        yield Case(text, FromGenerator(theta), Numbers(1.0), MIDDLE)


def laws_of_categories() -> Iterator[Case]:
    masking, uniform, rates = Categories("Masking"), Categories("Uniform"), Categories("RateMatrix")
    mild = Categories("Uniform", MILD)
    for on in (masking, uniform, rates):
        yield Case("Ancestral()", Ancestral(), on, COARSE)
    yield Case("Ancestral(2)", Ancestral(2), rates, COARSE)
    yield Case("Euler()", Euler(), masking, COARSE)
    yield Case("Euler()", Euler(), uniform, COARSE, brief=True)
    yield Case("Euler(hold=False)", Euler(hold=False), uniform, COARSE)
    yield Case("Euler(minimal=True)", Euler(minimal=True), uniform, COARSE)
    yield Case("Euler(gamma=0.5)", Euler(gamma=0.5), uniform, COARSE)
    yield Case("TauLeaping()", TauLeaping(), uniform, COARSE)
    yield Case("TauLeaping(ordinal=True)", TauLeaping(ordinal=True), rates, COARSE)
    for theta in (0.3, 0.5):
        text, sampler = f"ThetaTrapezoidal({theta:g})", ThetaTrapezoidal(theta)
        yield Case(text, sampler, mild, COARSE, brief=theta == 0.5)
        yield Case(text, sampler, uniform, (20, 40, 80), 1, "rates cut")
    yield Case("ThetaRK2()", ThetaRK2(), uniform, COARSE)
    yield Case("Reveal()", Reveal(), Categories("Masking", whole=True), (4, 8, 16))
    for on in (masking, uniform):
        yield Case("CategoricalDDIM()", CategoricalDDIM(), on, COARSE)
    yield Case("CategoricalDDIM(rate=3)", CategoricalDDIM(rate=3.0), uniform, COARSE)
    for on in (masking, uniform):
        yield Case("Psi(1)", Psi(1), on, COARSE)
    yield Case("Routed('random')", Routed("random"), uniform, COARSE)
    yield Case("Remasking(Rate(2))", Remasking(Rate(2.0)), masking, COARSE)
    text, balance = "PredictorCorrector(Euler(), DetailedBalance())", PredictorCorrector(Euler(), DetailedBalance())
    yield Case(text, balance, uniform, COARSE)
    yield Case("FromGenerator()", FromGenerator(), uniform, COARSE)
    yield Case("FromGenerator(0.5)", FromGenerator(0.5), mild, COARSE)


def laws_of_products() -> Iterator[Case]:
    pair, mixed = TwoNumbers(), NumberAndCategory()
    two = DPMSolverPP(2), DPMSolverPP(2, sde=True), DPMSolverPP(3)
    yield Case("Leaves(DPMSolverPP(3))", Leaves(two[2]), pair, FINER)
    yield Case("Leaves(Heun())", Leaves(Heun()), pair, MIDDLE)
    yield Case("Leaves(Ancestral())", Leaves(Ancestral()), pair, MIDDLE)
    yield Case("Leaves(a=DPMSolverPP(2), b=UniPC(2))", Leaves(a=two[0], b=UniPC(2)), pair, MIDDLE)
    yield Case("Leaves(a=DPMSolverPP(3), b=DPMSolverPP(2, sde=True))", Leaves(a=two[2], b=two[1]), pair, MIDDLE)
    yield Case("Leaves(a=Heun(), b=DDIM())", Leaves(a=Heun(), b=DDIM()), pair, MIDDLE)
    yield Case("Leaves(x=DDIM(), c=Euler())", Leaves(x=DDIM(), c=Euler()), mixed, (4, 8, 16), brief=True)
    both = Leaves(x=EulerMaruyama(), c=TauLeaping())
    yield Case("Leaves(x=EulerMaruyama(), c=TauLeaping())", both, mixed, (4, 8, 16))
    text, both = (
        "Leaves(x=FromGenerator(0.4), c=ThetaTrapezoidal(0.4))",
        Leaves(x=FromGenerator(0.4), c=ThetaTrapezoidal(0.4)),
    )
    yield Case(text, both, mixed, FEW)
    yield Case("FromGenerator()", FromGenerator(), mixed, (4, 8, 16))
    yield Case("FromGenerator(0.5)", FromGenerator(0.5), mixed, FEW)
    masked, evenly = NumberAndColumns(), DPMSolverPP(2, lower_final=False)  # in few steps, too
    yield Case("OneByOne(x=DDIM())", OneByOne(x=DDIM()), masked, (4, 8, 16))
    yield Case("OneByOne(x=DPMSolverPP(2, lower_final=False))", OneByOne(x=evenly), masked, (4, 8, 16))


def cases(brief: bool = False) -> list[Case]:
    found = [case for build in (flows, laws_of_numbers, laws_of_categories, laws_of_products) for case in build()]
    return [case for case in found if case.brief or not brief]


def measured(case: Case) -> tuple[Row, list[tuple[int, float]]]:
    """The row of a case, and what it was fitted to."""
    points = case.points()
    return row_of(case, points), points


def unstated() -> list[str]:
    """Exported samplers that have neither a row nor a reason to have none."""
    known = {type(case.sampler).__name__ for case in cases()} | set(WITHOUT)
    exported = [getattr(samplers, name) for name in samplers.__all__]
    classes = [found for found in exported if isinstance(found, type) and issubclass(found, Sampler)]
    return [found.__name__ for found in classes if found.__name__ not in known]
