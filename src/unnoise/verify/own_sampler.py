"""A sampler of one's own: its stated order, or its exactness, on every problem that it does not refuse.

A method that states an order has its error computed over steps (`verify.orders`) on numbers, on categories under masking and
under uniform noise, and on both together; one that states to be exact has its law, laid out where that can be done
(`verify.branching`), else drawn.  Any method: a sample is a function of its own row, and calls are what it said they are.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from unnoise.denoiser import AnyDenoiser
from unnoise.generators.kolmogorov import code
from unnoise.noise import NoiseSource
from unnoise.samplers import Sampler, sample
from unnoise.tree import leaves
from unnoise.verify.branching import NotCompared
from unnoise.verify.guard import guarded
from unnoise.verify.load import load
from unnoise.verify.order_settings import MILD, Categories, FlowTrajectories, NumberAndCategory, Numbers, Setting
from unnoise.verify.orders import Case, measured
from unnoise.verify.rows import Place, Row

EXACT, DRAWS, LEVEL = 1e-9, 20_000, 1e-6  # LEVEL: how often a right law is rejected
BATCH = 1e-12  # of numbers: products of matrices round differently in batches of different sizes


def sampler_rows(path: str, thorough: bool = False) -> Iterator[Row]:
    """The rows of `--sampler package.module:name`."""
    sampler = load(path, "sampler", Sampler)
    taken = False
    for setting, counts in settings(sampler):
        place = Place(setting.process, setting.prediction, path)
        denoiser = setting.denoiser
        why = sampler.refuse(denoiser.process)
        if why:
            yield place.unchecked("order and draws", why)
            continue
        taken = True
        if sampler.exact:
            yield from _exact(place, sampler, setting)
        elif sampler.order is None:
            yield place.unchecked("order in law", "the sampler states no order, and not that it is exact")
        else:
            yield from _order(place, path, sampler, setting, counts)
        yield from _rows(place, sampler, denoiser)
        yield from _calls(place, sampler, denoiser)
    if not taken:
        raise ValueError(f"--sampler {path!r} refuses every problem there is: nothing could be checked")


def settings(sampler: Sampler) -> Iterator[tuple[Setting, tuple[int, ...]]]:
    """Problems, and the numbers of steps on each: more for a method of high order, fewer would not show it."""
    yield FlowTrajectories() if not sampler.draws else Numbers(), (16, 32, 64, 128)
    yield Categories("Masking"), (5, 10, 20)
    yield Categories("Uniform", MILD), (5, 10, 20)
    yield NumberAndCategory(), (4, 8, 16)


@guarded("order in law")
def _order(place: Place, path: str, sampler: Sampler, setting: Setting, counts: tuple[int, ...]) -> Iterator[Row]:
    row, points = measured(Case(path, sampler, setting, counts))
    worst = max(error for _, error in points)
    if worst < EXACT:  # a method may be exact on a problem
        yield place.equal(f"{setting.quantity}: exact here at any number of steps", 0.0, worst, EXACT)
    else:
        yield row


@guarded("law of an exact sampler")
def _exact(place: Place, sampler: Sampler, setting: Setting) -> Iterator[Row]:
    try:
        worst = setting.error(sampler, 2)
    except NotCompared:  # draw them
        if isinstance(setting, Categories):
            yield from _drawn(place, sampler, setting)
        else:
            yield place.unchecked("law of an exact sampler", "its draws can be laid out on categories only")
        return
    yield place.equal("error in law at 2 steps", 0.0, worst, EXACT)


def _drawn(place: Place, sampler: Sampler, setting: Categories) -> Iterator[Row]:
    oracle, process = setting.oracle, setting.oracle.process
    noise = NoiseSource(61, DRAWS)
    x = process.marginal(oracle.draw(noise.at("data")), setting.high).draw(noise.at("noised"))
    last, _ = sample(oracle, x=x, steps=1, sampler=sampler, seed=62, start=setting.high, end=setting.low)
    counts = code(process.state_space, last).bincount(minlength=len(setting.marginal(setting.low))).double()
    yield chi_square(place, "law of its draws", counts, setting.marginal(setting.low))


def chi_square(place: Place, quantity: str, counts: Tensor, law: Tensor) -> Row:
    """-log10 of Pearson's p-value, at most 6; what cannot be must not be seen."""
    law = law / law.sum()
    keep = law > 1e-15
    expected = counts.sum() * law[keep]
    statistic, freedom = ((counts[keep] - expected).square() / expected).sum(), float(keep.sum() - 1)
    p = float(torch.special.gammaincc(torch.tensor(freedom / 2, dtype=torch.float64), statistic / 2)) if freedom else 1.0
    p = p if float(counts[~keep].sum()) == 0 else 0.0
    shown = -torch.tensor(max(p, 1e-300), dtype=torch.float64).log10()
    limit = -torch.tensor(LEVEL, dtype=torch.float64).log10()
    return place.at_most(f"{quantity}: -log10 of a chi-square's p, {int(counts.sum())} draws", limit, shown)


@guarded("samples in batches")
def _rows(place: Place, sampler: Sampler, denoiser: AnyDenoiser) -> Iterator[Row]:
    """Sample i is a function of (seed, i) alone, whatever the batch."""
    many, _ = sample(denoiser, 7, steps=4, sampler=sampler, seed=63, start=0.8, end=0.3)
    few, _ = sample(denoiser, 2, steps=4, sampler=sampler, seed=63, start=0.8, end=0.3, first=3)
    for a, b in zip(leaves(many), leaves(few), strict=True):
        numbers = a.dtype.is_floating_point
        gap = (a[3:5].double() - b.double()).abs().max()
        yield place.equal("a sample alone and in a batch", 0.0, gap, BATCH if numbers else 0.0)


@guarded("network calls")
def _calls(place: Place, sampler: Sampler, denoiser: AnyDenoiser) -> Iterator[Row]:
    stated = sampler.calls(4, denoiser.process)
    if stated is None:
        yield place.unchecked("network calls", "not known beforehand, the sampler says")
        return
    _, info = sample(denoiser, 5, steps=4, sampler=sampler, seed=64, start=0.8, end=0.3)
    yield place.at_most("network calls of 4 steps, at most as stated", stated, info.calls)
