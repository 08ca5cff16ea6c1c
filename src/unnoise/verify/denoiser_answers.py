"""What a denoiser says of itself (`AnyDenoiser`: kinds, dtype, device, passes, cut-off), held against what it does.

Its parameters and one call tell: the kind of each leaf's prediction, the precision and the device of its numbers, and how
often networks were evaluated.  A call of an inner denoiser counts for its passes.  Of other parts (modules that are called)
it is not known which are networks, so there is a least and a most: without inner denoisers the part that is called most
often is one network at least, and each call of a part is one evaluation at most.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from unnoise.denoiser import AnyDenoiser, first_parameter, has_features, inner_denoisers
from unnoise.generators.kolmogorov import enumerable, states
from unnoise.predictions import Prediction, ProductPrediction
from unnoise.processes import Process
from unnoise.samplers import Ancestral, sample
from unnoise.shapes import Float, Tree
from unnoise.tree import batch_size
from unnoise.verify.guard import guarded
from unnoise.verify.rows import Place, Row

LISTED = 2000  # states of which all are visited


def answer_rows(denoiser: AnyDenoiser, place: Place) -> Iterator[Row]:
    for check in (_kinds, _dtype, _device, _passes, _cutoff):
        yield from check(denoiser, place)


def points(denoiser: AnyDenoiser) -> Tree:
    """States to ask at: all of them, or some of the prior's after a step; where alpha is 0 some kinds have no step."""
    space, times = denoiser.process.state_space, denoiser.process.grid
    if enumerable(space) and batch_size(states(space)) <= LISTED:
        return states(space)
    first, last = (0.95, 0.85) if times is None else (float(times[-1]), float(times[-2]))
    return sample(denoiser, 8, sampler=Ancestral(), seed=70, grid=[first, last])[0]


def a_time(denoiser: AnyDenoiser) -> Float[Tensor, ""]:
    """A time in the middle, of the grid where there is one."""
    times = denoiser.process.grid
    return torch.tensor(0.6 if times is None else float(times[(len(times) + 1) // 2]), dtype=torch.float64)


def by_leaf(prediction: Prediction, name: str = "its prediction") -> Iterator[tuple[str, Any]]:
    """The predictions of the leaves, with their names."""
    if not isinstance(prediction, ProductPrediction):
        yield name, prediction
        return
    for leaf, part in prediction.leaves.items():
        yield from by_leaf(part, leaf)


def agreement(place: Place, quantity: str, stated: Any, found: Iterable[tuple[str, Any]], allowed: Any = None) -> Row:
    """How many of those found are not as stated; the row names them."""
    allowed = {stated} if allowed is None else allowed
    wrong = [f"{name} has {value}" for name, value in found if value not in allowed]
    row = place.equal(quantity, 0, len(wrong), 0.0)
    return replace(row, note=f"states {stated}, but {', '.join(wrong)}") if wrong else row


def _asked(denoiser: AnyDenoiser) -> Prediction:
    return denoiser(points(denoiser), a_time(denoiser))


@guarded("kinds")
def _kinds(denoiser: AnyDenoiser, place: Place) -> Iterator[Row]:
    kinds, quantity = denoiser.kinds, "kinds: leaves predicted in another kind than stated"
    if kinds is None:
        yield place.unchecked(quantity, "it states none: not known before it is asked")
        return
    wrong = list(_other_kinds(kinds, _asked(denoiser), "its prediction"))
    row = place.equal(quantity, 0, len(wrong), 0.0)
    yield replace(row, note=", ".join(wrong)) if wrong else row


def _other_kinds(kinds: Any, prediction: Prediction, name: str) -> Iterator[str]:
    """What is predicted in another kind than stated, in words."""
    if isinstance(kinds, dict) and isinstance(prediction, ProductPrediction) and set(kinds) == set(prediction.leaves):
        for leaf, kind in kinds.items():
            yield from _other_kinds(kind, prediction.leaves[leaf], leaf)
    elif isinstance(kinds, dict) or not isinstance(prediction, kinds):
        stated = f"kinds of the leaves {sorted(kinds)}" if isinstance(kinds, dict) else kinds.__name__
        yield f"{name}: states {stated}, is {type(prediction).__name__}"


@guarded("dtype")
def _dtype(denoiser: AnyDenoiser, place: Place) -> Iterator[Row]:
    stated, first = denoiser.dtype, first_parameter(denoiser)
    if first is not None:
        yield agreement(place, "dtype: that of its parameters", stated, [("its first parameter", first.dtype)])
    single = torch.promote_types(stated, torch.float32)  # numbers of half precision may be kept in single
    yield from _values(denoiser, place, "dtype: predictions in another than stated", stated, "dtype", {stated, single})


@guarded("device")
def _device(denoiser: AnyDenoiser, place: Place) -> Iterator[Row]:
    stated, first = denoiser.device, first_parameter(denoiser)
    if first is not None:
        yield agreement(place, "device: that of its parameters", stated, [("its first parameter", first.device)])
    yield from _values(denoiser, place, "device: predictions on another than stated", stated, "device", {stated})


@guarded("values of a prediction")
def _values(denoiser: AnyDenoiser, place: Place, quantity: str, stated: Any, name: str, allowed: set) -> Iterator[Row]:
    parts = [(leaf, getattr(part, "value", None)) for leaf, part in by_leaf(_asked(denoiser))]
    arrays = [(leaf, getattr(value, name)) for leaf, value in parts if isinstance(value, Tensor)]
    if arrays:
        yield agreement(place, quantity, stated, arrays, allowed)
    else:
        yield place.unchecked(quantity, "its prediction holds no array")


@guarded("passes")
def _passes(denoiser: AnyDenoiser, place: Place) -> Iterator[Row]:
    stated = denoiser.passes
    least, most = evaluations(denoiser)
    row = place.equal("passes: evaluations of networks in one call", min(max(stated, least), most), stated, 0.0)
    yield row if row.ok else replace(row, note=f"states {stated}, but {_between(least, most)} were made")


def _between(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} to {most}"


@guarded("cut-off")
def _cutoff(denoiser: AnyDenoiser, place: Place) -> Iterator[Row]:
    stated = float(denoiser.cutoff)
    row = place.equal("cut-off lies in [0, 1)", min(max(stated, 0.0), 1 - 2.0**-53), stated, 0.0)
    yield row if row.ok else replace(row, note=f"states {stated}")


@dataclass
class Counter:
    """How often something is entered, calls from inside of it left out."""

    count: int = 0
    inside: bool = False

    def around(self, function: Callable) -> Callable:
        def counted(*arguments: Any, **options: Any) -> Any:
            if self.inside:
                return function(*arguments, **options)
            self.count, self.inside = self.count + 1, True
            try:
                return function(*arguments, **options)
            finally:
                self.inside = False

        return counted


def evaluations(denoiser: AnyDenoiser) -> tuple[int, int]:
    """How often networks are evaluated in one call, at least and at most."""
    x, t = points(denoiser), a_time(denoiser)
    with ExitStack() as stack:
        inner = [(part, stack.enter_context(counted(part))) for part in inner_denoisers(denoiser)]
        others = [stack.enter_context(counted(part)) for part in plain_parts(denoiser)]
        denoiser(x, t)
    known, counts = sum(part.passes * found.count for part, found in inner), [found.count for found in others]
    least = known if inner else max([1, *counts])
    return least, max(least, known + sum(counts))


def plain_parts(module: nn.Module) -> list[nn.Module]:
    """The modules among the parts that may be networks: neither denoisers nor processes, nor lists of others."""
    found: list[nn.Module] = []
    for part in module.children():
        if isinstance(part, nn.ModuleList | nn.ModuleDict):
            found += plain_parts(part)
        elif not isinstance(part, AnyDenoiser | Process) and not inner_denoisers(part):
            found.append(part)
    return found


@contextmanager
def counted(part: nn.Module) -> Iterator[Counter]:
    """Count the calls of a module: of `forward`, and of `features` where it says them apart."""
    counter = Counter()
    names = ["forward", "features"] if has_features(part) else ["forward"]
    before = {name: part.__dict__.get(name) for name in names}
    for name in names:
        part.__dict__[name] = counter.around(getattr(part, name))
    try:
        yield counter
    finally:
        for name, value in before.items():
            if value is None:
                del part.__dict__[name]
            else:
                part.__dict__[name] = value
