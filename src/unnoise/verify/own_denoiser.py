"""A denoiser of one's own, wrapped, guided or trained: it is one model, and its bound is a bound.

On a space whose states can be listed the law that the model really has is computed (`Enumeration`), and held against its
bound and against what it draws.  On any space: a row's prediction is that of the row alone, and a number for the time means
that time for every row; and what it says of itself is so (`verify.denoiser_answers`).
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from unnoise.denoiser import AnyDenoiser
from unnoise.generators.kolmogorov import code, enumerable, states
from unnoise.likelihoods import Enumeration
from unnoise.noise import NoiseSource
from unnoise.objectives import Quadrature, bound
from unnoise.samplers import Ancestral, sample
from unnoise.shapes import Tree
from unnoise.spaces import tree_leaves
from unnoise.tree import batch_size, map_leaves, pick
from unnoise.verify.denoiser_answers import LISTED, a_time, answer_rows, points
from unnoise.verify.guard import guarded
from unnoise.verify.load import load
from unnoise.verify.own_sampler import DRAWS, chi_square
from unnoise.verify.rows import Place, Row

STEPS = 8
EXACT, SINGLE = 1e-6, 1e-4  # nats, of a model in float64 and in lower precision


def denoiser_rows(path: str, thorough: bool = False) -> Iterator[Row]:
    """The rows of `--denoiser package.module:name`."""
    denoiser = load(path, "denoiser", AnyDenoiser).eval()
    for part in denoiser.parameters():
        part.requires_grad_(False)
    process, place = denoiser.process, Place(path)
    yield from answer_rows(denoiser, place)
    yield from _rows(denoiser, place)
    yield from _time(denoiser, place)
    if not enumerable(process.state_space):
        why = f"the states of {process.state_space} cannot be listed: build the denoiser on a small space of categories"
        yield place.unchecked("bound and law of the model", why)
    elif batch_size(states(process.state_space)) > LISTED:
        why = f"{process.state_space} has more than {LISTED} states: build the denoiser on a small space"
        yield place.unchecked("bound and law of the model", why)
    else:
        yield from _bound(denoiser, place)
        yield from _drawn(denoiser, place)


def _said(denoiser: AnyDenoiser, x: Tree, t: Tensor, few: Tree) -> list[Tensor]:
    """What a denoiser says of the reverse process, as numbers: the drift of each leaf and its rates; of a chain, the
    probabilities (or densities) of a few states after one step."""
    process, prediction, out = denoiser.process, denoiser(x, t), list[Tensor]()
    if process.grid is not None:
        law = prediction.step(process.before(t.expand(batch_size(x))))  # type: ignore[operator]
        for i in range(batch_size(few)):
            point = map_leaves(lambda v, i=i: v[i : i + 1].expand(batch_size(x), *v.shape[1:]), few)
            out.append(law.log_prob(point).double().exp())
        return out
    local = prediction.local()
    for path, _ in tree_leaves(process.state_space):
        part = pick(local, path)
        out += [v.double() for v in (part.drift, None if part.log_rates is None else part.rates) if v is not None]
    return out


def _precision(denoiser: AnyDenoiser) -> float:
    """float64 models are held to their rounding, others to theirs."""
    kinds = {part.dtype for part in denoiser.parameters() if part.dtype.is_floating_point}
    return EXACT if kinds <= {torch.float64} else SINGLE


def _few(x: Tree) -> Tree:
    return map_leaves(lambda v: v[:6], x)


@guarded("predictions in batches")
def _rows(denoiser: AnyDenoiser, place: Place) -> Iterator[Row]:
    x = points(denoiser)
    few = _few(x)
    rows = batch_size(x)
    times = denoiser.process.grid
    t = 0.2 + 0.6 * NoiseSource(71, rows).uniform() if times is None else times[1:][torch.arange(rows) % (len(times) - 1)]
    whole = _said(denoiser, x, t, few)
    turned = torch.arange(rows - 1, -1, -1)
    others = _said(denoiser, map_leaves(lambda v: v[turned], x), t[turned], few)
    for name, again, back in (("in another order", others, turned), ("alone", None, None)):
        gaps = []
        for k, value in enumerate(whole):
            if again is None:
                one = [
                    _said(denoiser, map_leaves(lambda v, i=i: v[i : i + 1], x), t[i : i + 1], few)[k] for i in (0, rows // 2)
                ]
                gaps += [_gap(value[i : i + 1], v) for i, v in zip((0, rows // 2), one, strict=True)]
            else:
                gaps.append(_gap(value, again[k][back]))
        yield place.equal(f"a row's prediction, {name}", 0.0, torch.stack(gaps).max(), _precision(denoiser))


def _gap(a: Tensor, b: Tensor) -> Tensor:
    return torch.where(a == b, 0.0, (a - b).abs() / a.abs().clamp_min(1)).max()


@guarded("one time for all rows")
def _time(denoiser: AnyDenoiser, place: Place) -> Iterator[Row]:
    x, t = points(denoiser), a_time(denoiser)
    each = t.expand(batch_size(x))
    gaps = [_gap(a, b) for a, b in zip(*(_said(denoiser, x, time, _few(x)) for time in (each, t)), strict=True)]
    yield place.equal("one t for all = that time for every row", 0.0, torch.stack(gaps).max(), _precision(denoiser))


@guarded("bound and law of the model")
def _bound(denoiser: AnyDenoiser, place: Place) -> Iterator[Row]:
    process, limit = denoiser.process, _precision(denoiser)
    data = states(process.space)
    place = Place(place.process, place.prediction, "bound")
    times = Quadrature(96) if process.grid is None else None
    ours = bound(denoiser, data, exact=True, times=times).total
    yield place.equal("points whose bound is no number", 0, ours.isnan().sum(), 0.0)
    mass = (-ours).exp().sum()
    yield place.at_most("sum_x exp(-bound) <= 1", 1.0, mass, limit)
    yield place.at_most("sum_x exp(-bound) > 0", mass, 1e-30)
    log_p, info = Enumeration().table(denoiser)
    yield place.equal("the model's own law sums to 1", 1.0, log_p.exp().sum(), limit)
    error = torch.zeros_like(log_p) if info.error is None else info.error
    yield place.at_most("-log p(x) of the model's own law <= bound", ours, -log_p - error, limit)


@guarded("draws of the model")
def _drawn(denoiser: AnyDenoiser, place: Place) -> Iterator[Row]:
    process = denoiser.process
    steps = STEPS if process.grid is None else None
    law = Enumeration(steps=steps).table(denoiser)[0].exp()
    x, _ = sample(denoiser, DRAWS, steps=steps, sampler=Ancestral(), seed=72)
    inside = _data(process, x)
    counts = code(process.space, map_leaves(lambda v: v[inside].cpu(), x)).bincount(minlength=len(law)).double()
    if process.noiseless(0.0 if process.grid is None else process.cutoff):  # the run ends on the data
        yield chi_square(place, "law of its draws = its law by enumeration", counts, law)
    else:
        yield place.unchecked("law of its draws", "noise is left at the last time: what is drawn is not yet the data")


def _data(process, x: Tree) -> Tensor:
    """Which rows are points of the data's space: noise may add states that are none."""
    inside = torch.ones(batch_size(x), dtype=torch.bool)
    for path, space in tree_leaves(process.space):
        size = space.size  # type: ignore[attr-defined]
        inside = inside & (pick(x, path).cpu().flatten(1) < size).all(1)
    return inside
