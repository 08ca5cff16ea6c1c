"""Classifier guidance: the reverse process of a model, tilted by how likely a label is at every state.

With h(x) = p(y | x_t = x) the reverse process given y has

    numbers       score + grad log h
    categories    rate of x -> x' times h(x')/h(x), for every change of one coordinate
    counts        births and deaths likewise

which at weight 1 is Bayes' rule in continuous time where h is exact.  On categories `how="exact"` asks the classifier about
all single changes, in batches; `how="taylor"` takes one gradient with respect to one-hot vectors,

    log h(x') - log h(x)  ~  grad log h . (e_x' - e_x).

Under masking sum_v theta_v h(x^v) = h(x), so that the tilted posterior is normalised as it stands.  Under other noise the
tilt is one of ratios, and a `Posterior` is turned into `Ratio` first.

A classifier is a function `classifier(x, t)` that returns log p(y | x_t), one number per row, up to a constant; for "taylor"
it has to take one-hot vectors [rows, *shape, states] of floats.
"""

from collections.abc import Callable
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from unnoise.denoiser import AnyDenoiser
from unnoise.predictions import Prediction, ProductPrediction, Ratio, tilt
from unnoise.predictions.continuous import ContinuousPrediction
from unnoise.predictions.counts import CountPrediction
from unnoise.predictions.finite import FinitePrediction, Posterior
from unnoise.shapes import AnyState, Tree
from unnoise.tree import batch_size, map_leaves, pick, replace

Classifier = Callable[[Any, Any], Tensor]
CHUNK = 2**14  # rows of one call of the classifier


class ClassifierGuided(AnyDenoiser):
    def __init__(self, denoiser: AnyDenoiser, classifier: Classifier, weight: float = 1.0, how: str = "exact"):
        super().__init__()
        if how not in ("exact", "taylor"):
            raise ValueError(f"how = {how!r}: choose 'exact' or 'taylor'")
        if not isfinite(weight):
            raise ValueError(f"weight = {weight}: it must be a number, such as 1")
        self.denoiser, self.process = denoiser, denoiser.process
        self.classifier, self.weight, self.how = classifier, float(weight), how

    @property
    def latest(self) -> float:
        """A slope says nothing at a time at which alpha = 0, where it is divided by alpha."""
        return min(super().latest, _latest(self.process.base))

    @property
    def kinds(self) -> Any:
        """As the model's; ratios where posteriors of noise that does not mask are tilted."""
        return _tilted_kinds(self.process.base, self.denoiser.kinds)

    @kinds.setter
    def kinds(self, kinds: Any) -> None:
        raise TypeError("the kinds of a guided denoiser are those of its model")

    def forward(self, x_t: AnyState, t: AnyState, /, **condition: Any) -> Prediction:
        prediction = self.denoiser(x_t, t, **condition).by_leaf()
        return self._tilted(prediction, (), x_t, t)

    def _tilted(self, prediction: Prediction, path: tuple[str, ...], x: Tree, t: Any) -> Prediction:
        if isinstance(prediction, ProductPrediction):
            leaves = {name: self._tilted(leaf, (*path, name), x, t) for name, leaf in prediction.leaves.items()}
            return ProductPrediction(leaves, prediction.process, prediction.x_t, prediction.t)
        if isinstance(prediction, ContinuousPrediction):
            return tilt(prediction, self.weight * self._slope(path, x, t))
        if isinstance(prediction, CountPrediction):
            return tilt(prediction, self.weight * self._neighbours(path, x, t))
        if isinstance(prediction, FinitePrediction):
            if isinstance(prediction, Posterior) and not prediction.process.absorbing:
                prediction = prediction.to(Ratio)
            by = self._changes(path, x, t) if self.how == "exact" else self._first_order(path, x, t, prediction)
            size = prediction.shapes(prediction.process, prediction.x_t)[0][-1]  # type: ignore[index]
            return tilt(prediction, self.weight * by[..., :size])
        raise TypeError(f"it is not known how a {type(prediction).__name__} is led by a classifier: tilt it yourself")

    def _log_h(self, x: Tree, t: Any) -> Tensor:
        value = self.classifier(x, t)
        if tuple(value.shape) != (batch_size(x),):
            raise ValueError(f"the classifier returned shape {tuple(value.shape)}; expected ({batch_size(x)},)")
        return value

    def _slope(self, path: tuple[str, ...], x: Tree, t: Any) -> Tensor:
        with torch.enable_grad():
            leaf = pick(x, path).detach().requires_grad_()
            (slope,) = torch.autograd.grad(self._log_h(replace(x, path, leaf), t).sum(), leaf)
        return slope

    def _about(self, path: tuple[str, ...], x: Tree, t: Any, values: Tensor) -> Tensor:
        """log h at [rows, candidates, *shape] states of one leaf, in chunks."""
        rows, count = values.shape[:2]
        flat, out = values.flatten(0, 1), []
        for start in range(0, rows * count, CHUNK):
            part = torch.arange(start, min(start + CHUNK, rows * count), device=flat.device)
            row = part // count
            near = map_leaves(lambda leaf, row=row: leaf[row], x)
            clock = map_leaves(lambda leaf, row=row: leaf[row] if isinstance(leaf, Tensor) and leaf.ndim else leaf, t)
            out.append(self._log_h(replace(near, path, flat[part]), clock))
        return torch.cat(out).reshape(rows, count)

    def _changes(self, path: tuple[str, ...], x: Tree, t: Any) -> Tensor:
        """log h of every value of every coordinate, the others as they are: [rows, *shape, states]."""
        leaf, process = pick(x, path), _process_at(self.process.base, path)
        states, flat = process.state_space.size, leaf.reshape(len(leaf), -1)
        rows, width = flat.shape
        changed = flat.reshape(rows, 1, 1, width).repeat(1, width, states, 1)
        place = torch.arange(width, device=leaf.device)
        changed[:, place, :, place] = torch.arange(states, device=leaf.device).expand(width, rows, states)
        told = self._about(path, x, t, changed.reshape(rows, width * states, *leaf.shape[1:]))
        return told.reshape(*leaf.shape, states)

    def _first_order(self, path: tuple[str, ...], x: Tree, t: Any, prediction: Any) -> Tensor:
        leaf, process = pick(x, path), _process_at(self.process.base, path)
        with torch.enable_grad():
            one_hot = torch.nn.functional.one_hot(leaf, process.state_space.size).to(prediction.value.dtype).requires_grad_()
            (slope,) = torch.autograd.grad(self._log_h(replace(x, path, one_hot), t).sum(), one_hot)
        return slope - slope.gather(-1, leaf.unsqueeze(-1))

    def _neighbours(self, path: tuple[str, ...], x: Tree, t: Any) -> Tensor:
        """log h(x -+ 1) - log h(x) of every coordinate: [rows, *shape, 2]."""
        leaf = pick(x, path)
        flat = leaf.reshape(len(leaf), -1)
        rows, width = flat.shape
        eye = torch.eye(width, dtype=leaf.dtype, device=leaf.device)
        near = torch.stack([(flat.unsqueeze(1) - eye).clamp_min(0), flat.unsqueeze(1) + eye], 2)
        told = self._about(path, x, t, near.reshape(rows, width * 2, *leaf.shape[1:]))
        here = self._log_h(x, t)
        return (told - here.unsqueeze(1)).reshape(*leaf.shape, 2)


def _tilted_kinds(process: Any, kinds: Any) -> Any:
    if isinstance(kinds, dict):
        return {name: _tilted_kinds(process.leaves[name], kind) for name, kind in kinds.items()}
    return Ratio if kinds is Posterior and not process.absorbing else kinds


def _latest(process: Any) -> float:
    if process.leaves:
        return min(_latest(leaf) for leaf in process.leaves.values())
    return 1.0 if process.absorbing else process.latest


def _process_at(process: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        process = process.leaves[name]
    return process
