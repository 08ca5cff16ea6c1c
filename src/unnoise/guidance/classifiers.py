"""Classifiers for guidance: those of noisy states, trained here, and those of data, seen through a model's posterior.

    fit_classifier(process, x0, labels)           p(y | x_t) by cross-entropy at times and states of the process
    ThroughPosterior(model, classifier, draws)    log of the mean of p(y | x_0) over estimates of x_0 from x_t

A noisy classifier that is trained well is that of Bayes' rule.  For `how="taylor"` its log p should be straight on the way
from one category to another, of which its task says nothing: `straight` weighs the square of how far it bends there, at
random ways (with 0 it is left as it comes, and first-order guidance is several times as far off).

The other asks no training: numbers go by the mean of x_0, with the slope through the network, and categories by draws of
their single laws, which know nothing of each other.  It is exact where p(y | x_0) is log-linear in numbers of a normal law,
and as draws grow for categories that are independent given x_t.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import cos, log, pi, prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm.auto import trange

from unnoise.denoiser import AnyDenoiser
from unnoise.guidance.twists import estimated
from unnoise.networks.embedding import fourier_of_value
from unnoise.networks.mlp import MLP, MLPConfig
from unnoise.noise import NoiseSource
from unnoise.processes import Process
from unnoise.samplers.sample import seed_of
from unnoise.shapes import AnyState, Float, Tree
from unnoise.training.leaf_kinds import leaf_kind, named_leaves
from unnoise.tree import batch_size, first_leaf
from unnoise.tree import rows as some_rows

WAVES = 3  # of each number
SHARE = 0.1  # of the rows, held out


class NoisyClassifier(nn.Module):
    """`forward(x_t, t)`: logits of the labels 0, 1, ...; categories may also come as one-hot vectors of floats."""

    def __init__(self, process: Process, labels: int, width: int = 128, layers: int = 3):
        super().__init__()
        self.process, self.labels = process.base, labels
        for name, leaf in named_leaves(process).items():
            if leaf.leaves:
                raise ValueError(f"products within products are not classified, and leaf {name!r} is one")
        seen = sum(_entries(leaf) for leaf in named_leaves(process).values())
        self.network = MLP(MLPConfig(shape=(seen,), answers=(labels,), frequencies=0, width=width, layers=layers))
        self.held_out = float("nan")

    def forward(self, x_t: AnyState, t: Any) -> Float[Tensor, "batch labels"]:
        leaves = x_t if isinstance(x_t, dict) else {"": x_t}
        seen = [_seen(leaf, leaves[name]) for name, leaf in named_leaves(self.process).items()]
        return self.network(torch.cat(seen, 1), _clock(t, len(seen[0])))

    def of(self, label: int) -> Callable[[Any, Any], Tensor]:
        """log p(label | x_t), as guidance asks."""
        if not 0 <= label < self.labels:
            raise ValueError(f"label = {label}: the classifier knows 0, ..., {self.labels - 1}")
        return lambda x_t, t: self(x_t, t).log_softmax(1)[:, label]


def _clock(t: Any, rows: int) -> Float[Tensor, "batch"]:
    """One time for each row: the latest of its leaves, where they have times of their own."""
    times = list(t.values()) if isinstance(t, dict) else [t]
    return torch.stack([time.expand(rows).to(torch.get_default_dtype()) for time in times]).amax(0)


def _entries(leaf: Process) -> int:
    shape: Sequence[int] = getattr(leaf.state_space, "shape", (leaf.state_space.dimension,))
    if leaf_kind(leaf) == "category":
        return prod(shape) * leaf.state_space.size  # type: ignore[attr-defined]
    return prod(shape) * (1 if leaf_kind(leaf) == "count" else 1 + 2 * WAVES)


def _seen(leaf: Process, x: Tensor) -> Float[Tensor, "batch entries"]:
    kind = leaf_kind(leaf)
    if kind == "category":
        size = leaf.state_space.size  # type: ignore[attr-defined]
        return (x if x.is_floating_point() else F.one_hot(x, size)).flatten(1).to(torch.get_default_dtype())
    if kind == "count":
        return x.reshape(len(x), -1).to(torch.get_default_dtype()).log1p()
    return fourier_of_value(x.reshape(len(x), -1), WAVES).flatten(1)


def fit_classifier(
    process: Process,
    x0: Tree,
    labels: Tensor,
    steps: int = 2000,
    batch: int = 512,
    lr: float = 3e-3,
    straight: float = 20.0,
    seed: int | None = None,
    classifier: Any = None,
    progress: bool = False,
) -> Any:
    """Trained on noisy states of data; `held_out` of what is returned is its cross-entropy, in nats, on rows it has not
    seen, at times of all kinds.  Without a seed each fit is another.  Another module may be passed, of (x_t, t) to logits.
    """
    count, process, device = batch_size(x0), process.base, first_leaf(x0).device
    if labels.shape != (count,) or labels.is_floating_point():
        raise ValueError(f"labels have shape {tuple(labels.shape)} and dtype {labels.dtype}: pass an integer for each row")
    if count < 2 or int(labels.min()) < 0:
        raise ValueError("pass at least two rows, with labels 0, 1, ...")
    seed = seed_of(seed)
    numbers, noise = torch.Generator().manual_seed(seed), NoiseSource(seed, batch, device)
    if classifier is None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            classifier = NoisyClassifier(process, int(labels.max()) + 1)
    classifier = classifier.to(device)
    order = torch.randperm(count, generator=numbers)
    held, kept = order[: max(1, int(SHARE * count))], order[max(1, int(SHARE * count)) :]
    adam = torch.optim.AdamW(classifier.parameters(), lr=lr, weight_decay=1e-3)
    loss_of = partial(_loss, classifier, process, x0, labels, numbers)
    for k in trange(steps, desc="classifier", disable=not progress):
        adam.param_groups[0]["lr"] = lr * min(1.0, (k + 1) / 50) * 0.5 * (1 + cos(pi * k / steps))
        rows = kept[torch.randint(len(kept), (batch,), generator=numbers)]
        loss = loss_of(rows, noise.at("training", k), straight)
        adam.zero_grad()
        loss.backward()
        adam.step()
    with torch.no_grad():
        many = held[torch.randint(len(held), (max(batch, 4096),), generator=numbers)]
        classifier.held_out = float(loss_of(many, NoiseSource(seed, len(many), device).at("held out"), 0.0))
    return classifier.eval().requires_grad_(False)


def _loss(
    classifier: nn.Module,
    process: Process,
    x0: Tree,
    labels: Tensor,
    numbers: torch.Generator,
    rows: Tensor,
    noise: NoiseSource,
    straight: float,
) -> Tensor:
    device = noise.rows.device
    t = (process.latest * torch.rand(len(rows), generator=numbers, dtype=torch.float64)).to(device)
    rows = rows.to(device)
    x_t = process.marginal(some_rows(x0, rows), t).draw(noise)
    told = classifier(x_t, t)
    loss = F.cross_entropy(told.float(), labels.to(device)[rows])
    if not straight:
        return loss
    return loss + straight * _bend(classifier, process, x_t, t, told, noise.at("edge"))


def _bend(classifier: nn.Module, process: Process, x_t: Any, t: Tensor, told: Tensor, noise: NoiseSource) -> Tensor:
    """How far log p is from linear on the way to another value of one category, in the mean square."""
    leaves, total = x_t if isinstance(x_t, dict) else {"": x_t}, told.new_zeros(())
    here = told.log_softmax(1)
    for name, leaf in named_leaves(process).items():
        if leaf_kind(leaf) != "category":
            continue
        x, size = leaves[name], leaf.state_space.size  # type: ignore[attr-defined]
        flat, u = x.reshape(len(x), -1), noise.at("where", name).uniform((3,))
        place = (u[:, 0] * flat.shape[1]).long().clamp_max(flat.shape[1] - 1).unsqueeze(1)
        value = (u[:, 1] * size).long().clamp_max(size - 1).unsqueeze(1)
        other = flat.scatter(1, place, value).reshape(x.shape)
        part = u[:, 2].to(told.dtype)
        share = part.reshape(-1, *[1] * x.ndim)
        between = (1 - share) * F.one_hot(x, size) + share * F.one_hot(other, size)
        there, middle = (
            classifier({**leaves, name: y} if isinstance(x_t, dict) else y, t).log_softmax(1) for y in (other, between)
        )
        total = total + (middle - torch.lerp(here, there, part.unsqueeze(1))).square().mean()
    return total


class ThroughPosterior:
    """log p(y | x_t) by a classifier of data, `classifier(x0)` = log p(y | x_0), one number for each row."""

    def __init__(self, denoiser: AnyDenoiser, classifier: Callable[[Any], Tensor], draws: int = 4):
        if draws < 1:
            raise ValueError(f"draws = {draws}: at least one estimate of x_0 is needed")
        self.denoiser, self.classifier, self.draws = denoiser, classifier, draws

    def __call__(self, x_t: AnyState, t: Any) -> Float[Tensor, "batch"]:
        prediction, leaf = self.denoiser(x_t, t), first_leaf(x_t)
        told = []
        for k in range(self.draws):
            common = NoiseSource(0, torch.zeros(len(leaf), dtype=torch.int64), leaf.device).at("classifier", k)
            x0 = estimated(prediction, common)
            if x0 is None:
                raise TypeError(f"a {type(prediction).__name__} says nothing of x_0 that a classifier of data could see")
            told.append(self.classifier(x0))
        return torch.stack(told).logsumexp(0) - log(self.draws)
