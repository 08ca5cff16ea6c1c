"""A rule of times of one's own: its weights are one over its density, and the bound's mean under it is the bound.

Sums of weights times f(t), for a few f, have int f dt as their mean; and on a small problem of each family that the rule
takes, the mean of the bound over draws is the exact one.  Both are drawn, and told in standard errors: a right rule is
beyond 4 with probability 6e-5 a row.
"""

from collections.abc import Callable, Iterator
from math import cos, sin

import torch
from torch import Tensor

from unnoise.noise import NoiseSource
from unnoise.objectives import Times, bound
from unnoise.processes import Gaussian, Masking, Product, Thinning, Uniform
from unnoise.schedules import LinearBeta
from unnoise.tree import map_leaves
from unnoise.verify.bounds import estimated
from unnoise.verify.guard import guarded, refusal, refused
from unnoise.verify.load import load
from unnoise.verify.rows import Place, Row
from unnoise.verify.subjects import Subject, count_subject, finite_subject, gaussian_subject, kind_name, product_subject

DRAWS, LOW = 4000, 0.1
SUBJECTS: dict[str, Callable[[], Subject]] = {
    "Gaussian": lambda: gaussian_subject(Gaussian((1,)), "Gaussian"),
    "Masking": lambda: finite_subject(Masking(3, (2,)), "Masking"),
    "Uniform": lambda: finite_subject(Uniform(3, (2,), LinearBeta()), "Uniform"),
    "Thinning": lambda: count_subject(Thinning((1,)), "Thinning"),
    "Gaussian×Masking": lambda: product_subject(Product(y=Gaussian((1,)), c=Masking(3, (1,))), "Gaussian×Masking"),
}
FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], float]] = {  # with their integrals over [LOW, 1]
    "1": (torch.ones_like, 1 - LOW),
    "t": (lambda t: t, (1 - LOW**2) / 2),
    "sin 5t": (lambda t: torch.sin(5 * t), (cos(5 * LOW) - cos(5)) / 5),
    "cos 9t": (lambda t: torch.cos(9 * t), (sin(9) - sin(9 * LOW)) / 9),
}


def times_rows(path: str, thorough: bool = False) -> Iterator[Row]:
    """The rows of `--times package.module:name`."""
    rule = load(path, "times", Times)
    taken = False
    for name, make in SUBJECTS.items():
        subject = make()
        subject.cutoffs = (max(subject.process.cutoff, subject.cutoffs[0]), *subject.cutoffs[1:])
        place = Place(name, kind_name(subject.oracle.kinds), path)
        try:
            _visits(rule, subject, 2)
        except Exception as error:  # a rule may be for some processes only
            yield refusal(place, "weights and mean of the bound", error)
            taken = taken or not refused(error)
            continue
        taken = True
        yield from _weights(place, rule, subject)
        yield from _mean(place, rule, subject)
    if not taken:
        raise ValueError(f"--times {path!r} takes no process there is: nothing could be checked")


def _visits(rule: Times, subject: Subject, rows: int):
    many = map_leaves(lambda v: v[:1].expand(rows, *v.shape[1:]), subject.points)
    return rule.visit(subject.process, many, LOW, NoiseSource(65, rows))


@guarded("weights of a rule of times")
def _weights(place: Place, rule: Times, subject: Subject) -> Iterator[Row]:
    visits = _visits(rule, subject, DRAWS)
    yield place.at_most("times lie above the cut-off", -LOW, -visits.t.min(), 1e-12)
    yield place.at_most("times lie below 1", 1.0, visits.t.max(), 1e-12)
    if rule.draws_state:
        yield place.unchecked("weights = 1/density", "the rule draws the state with the time: its weights belong to both")
        return
    for name, (function, exact) in FUNCTIONS.items():
        values = (visits.weight * function(visits.t)).sum(0)
        gap = (values.mean() - exact).abs() / (values.std() / DRAWS**0.5 + 1e-12)
        yield place.row(f"weights = 1/density: integral of {name}, error in standard errors", exact, values.mean(), gap, 4.0)


@guarded("mean over random times")
def _mean(place: Place, rule: Times, subject: Subject) -> Iterator[Row]:
    x = map_leaves(lambda v: v[:1], subject.points)
    oracle, eps = subject.oracle, subject.cutoffs[0]
    exact = bound(oracle, x, exact=True, times=subject.quadrature, cutoff=eps, decoder=oracle.decoder).total[0]
    yield from estimated(subject, place, rule, exact, DRAWS)
