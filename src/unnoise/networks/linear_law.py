"""The linear law of a table: numbers as a sum of the effects of labels and of correlated noise.

    z = m + sum_j B_j[label_j] + e,      e ~ N(0, S),      labels of a law of their own (`label_law`) in few rows

The effects are those of a ridge regression, and S, what they leave of the covariance, is shrunk towards its diagonal; how
strongly, is what makes the numbers of rows left out likeliest.  `sure` says for every coordinate how far its labels follow
from the numbers by Bayes' rule on this law: the power of the evidence under which the labels of rows left out are likeliest.
"""

from dataclasses import dataclass, replace
from math import log, pi
from typing import Any

import torch
from torch import Tensor

from unnoise.networks.label_law import LabelLaw, fit_label_law, log_shares
from unnoise.processes import FiniteProcess, Gaussian, Process
from unnoise.shapes import AnyState, Float, Int
from unnoise.tree import batch_size

RIDGES = (1.0, 4.0, 16.0, 64.0, float("inf"))  # rows, that say "no effect"
SHRINKS = (0.003, 0.01, 0.03, 0.1, 0.2, 0.4)
SURE = (0.0, 0.03, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0)
FLOOR = 1e-3  # of the eigenvalues of S, of numbers whose variance is about 1
FOLDS = 4
MOST_ROWS = 20_000
MOST_CLASSED = 1000  # rows, whose labels hang together in the law
MOST_NUMBERS, MOST_LABELS = 128, 1000


@dataclass(frozen=True, eq=False)
class LinearLaw:
    mean: Float[Tensor, "d"]
    covariance: Float[Tensor, "d d"]
    effects: Float[Tensor, "labels d"]  # of all labels of all coordinates, one after the other
    log_shares: Float[Tensor, "labels"]
    sizes: tuple[int, ...]  # how many labels each coordinate has
    sure: Float[Tensor, "coordinates"]  # in [0, 1]
    labels: LabelLaw | None = None  # how they hang together; None: not at all

    def label_law(self) -> LabelLaw:
        independent = LabelLaw(self.log_shares.new_zeros(1), self.log_shares.unsqueeze(0))
        return independent if self.labels is None else self.labels

    def effect_parts(self) -> tuple[Tensor, ...]:
        return self.effects.split(list(self.sizes)) if self.sizes else ()

    def share_parts(self) -> tuple[Tensor, ...]:
        return self.log_shares.split(list(self.sizes)) if self.sizes else ()

    def spreads(self) -> Float[Tensor, "coordinates d d"]:
        """The covariance of every coordinate's effects."""
        found = []
        for own, log_share in zip(self.effect_parts(), self.share_parts(), strict=True):
            share = log_share.exp().unsqueeze(1)
            apart = own - (share * own).sum(0)
            found.append(apart.T @ (share * apart))
        return torch.stack(found) if found else self.mean.new_zeros(0, len(self.mean), len(self.mean))

    def check(self, numbers: int, sizes: list[int]) -> None:
        if len(self.mean) != numbers or list(self.sizes) != list(sizes):
            raise ValueError(
                f"the law has {len(self.mean)} numbers and labels of the sizes {list(self.sizes)}, the process {numbers} "
                f"and {sizes}: fit it to this data"
            )

    def to_json(self) -> dict[str, Any]:
        names = ("mean", "covariance", "effects", "log_shares", "sure")
        said: dict[str, Any] = {**{name: _plain(getattr(self, name)) for name in names}, "sizes": list(self.sizes)}
        if self.labels is not None:
            said["labels"] = {name: _plain(getattr(self.labels, name)) for name in ("log_weights", "log_given")}
        return said

    @classmethod
    def from_json(cls, data: Any) -> "LinearLaw":
        try:
            names = ("mean", "covariance", "effects", "log_shares", "sure")
            mean, covariance, effects, shares, sure = (torch.tensor(data[name], dtype=torch.float64) for name in names)
            d, sizes = len(mean), tuple(int(size) for size in data["sizes"])
            effects, shares, sure = effects.reshape(sum(sizes), d), shares.reshape(sum(sizes)), sure.reshape(len(sizes))
            law = cls(
                mean, covariance.reshape(d, d), effects, shares, sizes, sure, _label_law(data.get("labels"), sum(sizes))
            )
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"the law that the network starts from cannot be read ({error}): train the run again"
            ) from error
        if not bool(torch.linalg.eigvalsh(law.covariance).gt(0).all()):
            raise ValueError("the law that the network starts from has a covariance that is none: train the run again")
        return law


def _label_law(data: Any, labels: int) -> LabelLaw | None:
    if data is None:
        return None
    weights, given = (torch.tensor(data[name], dtype=torch.float64) for name in ("log_weights", "log_given"))
    return LabelLaw(weights, given.reshape(len(weights), labels))


def _plain(part: Tensor) -> list:
    """Eight digits of each: as many as float32 has."""
    digits = [float(f"{v:.8g}") for v in part.flatten().tolist()]
    return torch.tensor(digits, dtype=torch.float64).reshape(part.shape).tolist()


@dataclass(frozen=True)
class Rows:
    """Numbers side by side, and all labels as 0 and 1 side by side."""

    z: Float[Tensor, "rows d"]
    marks: Float[Tensor, "rows labels"]
    sizes: tuple[int, ...]

    def pick(self, rows: Tensor) -> "Rows":
        return Rows(self.z[rows], self.marks[rows], self.sizes)


def can_fit(process: Process) -> bool:
    """Whether all leaves are numbers under independent noise or masked labels, and not too many to be quick."""
    leaves = list((process.base.leaves or {"": process.base}).values())
    numbers = [leaf for leaf in leaves if isinstance(leaf, Gaussian) and leaf.covariance is None and not leaf.schedule.shape]
    labels = [leaf for leaf in leaves if isinstance(leaf, FiniteProcess) and leaf.absorbing]
    if process.grid is not None or len(numbers) + len(labels) < len(leaves):
        return False
    return (
        sum(leaf.space.dimension for leaf in numbers) <= MOST_NUMBERS
        and sum(sum(leaf.space.coordinate_sizes) for leaf in labels) <= MOST_LABELS
    )


def fit_linear_law(process: Process, x0: AnyState) -> LinearLaw:
    """The law of these rows, on a product of numbers and labels or on one such leaf; of at most MOST_ROWS, evenly spread."""
    rows = _rows(process, x0)
    if len(rows.z) > MOST_ROWS:
        rows = rows.pick(torch.linspace(0, len(rows.z) - 1, MOST_ROWS).long())
    ridge, shrink, sure = _chosen(rows)
    labels = _label_classes(rows, len(rows.z))
    return replace(_fitted(rows, ridge, shrink), sure=sure, labels=labels if len(labels.log_weights) > 1 else None)


def _rows(process: Process, x0: AnyState) -> Rows:
    leaves, parts = process.base.leaves or {"": process.base}, x0 if isinstance(x0, dict) else {"": x0}
    n, sizes = batch_size(x0), []
    z, marks = [torch.zeros(n, 0, dtype=torch.float64)], [torch.zeros(n, 0, dtype=torch.float64)]
    for name, leaf in leaves.items():
        own: Int[Tensor, "rows k"] = parts[name].detach().cpu().reshape(n, -1)
        if isinstance(leaf, Gaussian):
            z.append(own.double())
            continue
        sizes += leaf.space.coordinate_sizes  # type: ignore[attr-defined]
        for column, size in zip(own.unbind(1), leaf.space.coordinate_sizes, strict=True):  # type: ignore[attr-defined]
            marks.append(torch.nn.functional.one_hot(column, size).double())
    return Rows(torch.cat(z, 1), torch.cat(marks, 1), tuple(sizes))


def _fitted(rows: Rows, ridge: float, shrink: float) -> LinearLaw:
    n, d = rows.z.shape
    centre, mean = rows.marks.mean(0), rows.z.mean(0)
    effects = torch.zeros(rows.marks.shape[1], d, dtype=torch.float64)
    left = rows.z - mean
    scatter = left.T @ left / max(1, n)
    if ridge < float("inf") and len(centre) and d:
        apart, levels = rows.marks - centre, _levels(rows)
        seen = apart @ torch.cat([torch.eye(len(centre), dtype=torch.float64), levels], 1)
        found = torch.linalg.solve(seen.T @ seen + ridge * torch.eye(seen.shape[1], dtype=torch.float64), seen.T @ left)
        effects = found[: len(centre)] + levels @ found[len(centre) :]
        scatter = scatter - (apart @ effects).T @ (apart @ effects) / n  # what the labels do not spread
        mean = mean - centre @ effects
    scatter = (1 - shrink) * scatter + shrink * torch.diag(scatter.diagonal())
    values, axes = torch.linalg.eigh(scatter)
    covariance = (axes * values.clamp_min(FLOOR)) @ axes.T
    shares, sure = log_shares(rows.marks, rows.sizes), torch.ones(len(rows.sizes), dtype=torch.float64)
    return _centred(LinearLaw(mean, covariance, effects, shares, rows.sizes, sure))


def _levels(rows: Rows) -> Float[Tensor, "labels coordinates"]:
    """The number of every label in its coordinate, to variance 1: an order that numbers may follow, as one label more."""
    result = torch.zeros(rows.marks.shape[1], len(rows.sizes), dtype=torch.float64)
    place = 0
    for j, (size, marks) in enumerate(zip(rows.sizes, rows.marks.split(list(rows.sizes), 1), strict=True)):
        number = torch.arange(size, dtype=torch.float64)
        spread = (marks @ number).std(correction=0)
        result[place : place + size, j] = (number - number.mean()) / spread if spread > 0 else 0.0
        place += size
    return result


def _centred(law: LinearLaw) -> LinearLaw:
    """The same law, with effects of mean 0 over the labels of each coordinate: where it is masked, none is added."""
    parts, mean = [], law.mean
    for own, log_share in zip(law.effect_parts(), law.share_parts(), strict=True):
        middle = log_share.exp() @ own
        parts.append(own - middle)
        mean = mean + middle
    effects = torch.cat(parts) if parts else law.effects
    return replace(law, mean=mean, effects=effects)


def _log_density(law: LinearLaw, rows: Rows) -> float:
    left = rows.z - law.mean - rows.marks @ law.effects
    factor = torch.linalg.cholesky(law.covariance)
    white = torch.linalg.solve_triangular(factor, left.T, upper=False)
    each = -0.5 * white.square().sum(0) - factor.diagonal().log().sum() - 0.5 * len(law.mean) * log(2 * pi)
    return float(each.sum())


def _log_labels(law: LinearLaw, rows: Rows) -> Float[Tensor, "powers coordinates"]:
    """Of the labels of all rows given their numbers and other labels, under every power of the evidence."""
    if not rows.sizes:
        return torch.zeros(len(SURE), 0, dtype=torch.float64)
    left, precision = rows.z - law.mean - rows.marks @ law.effects, torch.linalg.inv(law.covariance)
    powers, result = torch.tensor(SURE, dtype=torch.float64).reshape(-1, 1, 1), []
    told = law.label_law().log_given_others(rows.marks, rows.sizes).split(list(rows.sizes), 1)
    for own, before, marks in zip(law.effect_parts(), told, rows.marks.split(list(rows.sizes), 1), strict=True):
        apart = left + marks @ own  # as if this label were not known
        evidence = apart @ precision @ own.T - 0.5 * ((own @ precision) * own).sum(1)
        result.append(((before + powers * evidence).log_softmax(-1) * marks).sum((1, 2)))
    return torch.stack(result, 1)


def _label_classes(rows: Rows, of: int) -> LabelLaw:
    """How labels hang together in these rows of so many; of many, a network finds it out, with nothing to unlearn."""
    if of <= MOST_CLASSED:
        return fit_label_law(rows.marks, rows.sizes)
    return LabelLaw(rows.z.new_zeros(1), log_shares(rows.marks, rows.sizes).unsqueeze(0))


def _folds(rows: Rows) -> list[tuple[Rows, Rows]]:
    """Rows to fit to and rows left out, the same for the same number of rows."""
    n = len(rows.z)
    fold = torch.arange(n) * FOLDS // n
    mixed = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    return [(rows.pick(mixed[fold != k]), rows.pick(mixed[fold == k])) for k in range(FOLDS)]


def _chosen(rows: Rows) -> tuple[float, float, Float[Tensor, "coordinates"]]:
    """The ridge and the shrinkage under which the numbers of rows left out are likeliest, and how sure of their labels."""
    n, d = rows.z.shape
    if d == 0 or n < 2 * FOLDS:
        return RIDGES[-1], SHRINKS[-1], torch.zeros(len(rows.sizes), dtype=torch.float64)
    shrinks = SHRINKS if d > 1 else SHRINKS[:1]
    ridges = RIDGES if rows.sizes else RIDGES[-1:]
    folds, score = _folds(rows), {(ridge, shrink): 0.0 for ridge in ridges for shrink in shrinks}
    for seen, held in folds:
        for ridge, shrink in score:
            score[ridge, shrink] += _log_density(_fitted(seen, ridge, shrink), held)
    best = max(score, key=score.__getitem__)
    laws = [replace(_fitted(seen, *best), labels=_label_classes(seen, n)) for seen, _ in folds]
    labels = torch.stack([_log_labels(law, held) for law, (_, held) in zip(laws, folds, strict=True)]).sum(0)
    return *best, torch.tensor(SURE, dtype=torch.float64)[labels.argmax(0)]
