"""A weighting of one's own: it is what it claims to be, everywhere that wrong networks lead it.

A weighting that claims to be the bound has the divergence of the generators as its rate; any weighting is finite, has a
finite gradient, and on a product is the sum over its leaves, unless it weighs them by name.
"""

from collections.abc import Iterator
from typing import Any

import torch

from unnoise.noise import NoiseSource
from unnoise.objectives.closed_forms import rate
from unnoise.objectives.weightings import Weighting
from unnoise.predictions import Prediction, ProductPrediction
from unnoise.tree import batch_size
from unnoise.verify.bounds import FAST
from unnoise.verify.guard import guarded, refusal, refused
from unnoise.verify.load import load
from unnoise.verify.own_times import SUBJECTS
from unnoise.verify.rows import Place, Row
from unnoise.verify.subjects import Subject, kind_name
from unnoise.verify.wrong import Perturbed, with_value


def weighting_rows(path: str, thorough: bool = False) -> Iterator[Row]:
    """The rows of `--weighting package.module:name`."""
    weighting = load(path, "weighting", Weighting)
    taken = False
    for name, make in SUBJECTS.items():
        subject = make()
        for kind in subject.kinds:
            place = Place(name, kind_name(kind), path)
            prediction = wrong(subject, kind)
            try:
                weighting.rate(prediction, subject.process, subject.points)
            except Exception as error:  # a weighting may be for some spaces only
                yield refusal(place, "rate of a weighting", error)
                taken = taken or not refused(error)
                continue
            taken = True
            yield from _rate(place, weighting, subject, prediction)
            yield from _gradient(place, weighting, subject, kind)
    if not taken:
        raise ValueError(f"--weighting {path!r} takes no process there is: nothing could be checked")


def wrong(subject: Subject, kind: Any, scale: float = 1.0) -> Prediction:
    """A wrong network at noised data, from little noise to much."""
    rows = batch_size(subject.points)
    source = NoiseSource(66, rows)
    t = 0.02 + 0.96 * source.at("time").uniform()
    x_t = subject.process.marginal(subject.points, t).draw(source.at("state"))
    return Perturbed(subject.oracle.predicting(kind), scale, 67)(x_t, t)


@guarded("rate of a weighting")
def _rate(place: Place, weighting: Weighting, subject: Subject, prediction: Prediction) -> Iterator[Row]:
    process, x0 = subject.process, subject.points
    ours = weighting.rate(prediction, process, x0)
    yield place.equal("rows whose rate is no number", 0, (~ours.isfinite()).sum(), 0.0)
    if weighting.is_bound:
        exact = rate(prediction, process, x0, fast=False)
        yield place.equal("it claims to be the bound: rate = divergence of generators", exact, ours, FAST)
    if isinstance(prediction, ProductPrediction):
        parts = prediction.leaves
        try:
            each = [weighting.rate(parts[name], leaf, x0[name]) for name, leaf in process.leaves.items()]
        except TypeError as error:  # it weighs leaves by name
            yield refusal(place, "rate of a product = sum over leaves", error)
            return
        yield place.equal("rate of a product = sum over leaves", torch.stack(each).sum(0), ours, FAST)


@guarded("gradient of a weighting")
def _gradient(place: Place, weighting: Weighting, subject: Subject, kind: Any) -> Iterator[Row]:
    prediction = wrong(subject, kind)
    if isinstance(prediction, ProductPrediction):
        leaves = {name: _open(leaf) for name, leaf in prediction.leaves.items()}
        prediction = ProductPrediction(leaves, prediction.process, prediction.x_t, prediction.t)
        values = [leaf.value for leaf in leaves.values()]  # type: ignore[attr-defined]
    else:
        prediction = _open(prediction)
        values = [prediction.value]  # type: ignore[attr-defined]
    with torch.enable_grad():
        total = weighting.rate(prediction, subject.process, subject.points).sum()
        slopes = torch.autograd.grad(total, values, allow_unused=True)
    bad = sum(int((~slope.isfinite()).sum()) for slope in slopes if slope is not None)
    yield place.equal("entries of its gradient that are no numbers", 0, bad, 0.0)


def _open(prediction: Any) -> Prediction:
    """The prediction with a value to differentiate by."""
    return with_value(prediction, prediction.value.detach().clone().requires_grad_())
