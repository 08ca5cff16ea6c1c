"""What a classifier of real images says of samples.

A classifier always answers, so its answer alone says little.  Here several small networks are trained on labelled images,
with one class more for what is no image of the data: noise, pixels shuffled between images, and blends of two images of
different classes.  An image is *recognised* if the confidence of its most likely class (the smallest probability that any of
the networks gives it) is at least that of 99 % of real images which none of them was trained on, and at least a half.  So
about 99 % of unseen real images are recognised.  What the share of samples is worth, the `controls` show: junk of the kinds
that training saw, and of one that it did not, halves of two classes put together (some of which are good digits).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unnoise.data.arrays import Array
from unnoise.shapes import Float, Int

HELD, PASSING = 0.1, 0.99  # the share of images kept for the threshold, and of these that reach it
LEAST = 0.5  # of a threshold


@dataclass
class Recognition:
    """Of each image its most likely class, how sure the least sure network is of it, and whether that suffices."""

    label: Int[Tensor, "images"]
    confidence: Float[Tensor, "images"]
    recognised: Tensor

    @property
    def share(self) -> float:
        return float(self.recognised.double().mean())

    def counts(self, classes: int) -> list[int]:
        """Recognised images of each class."""
        return torch.bincount(self.label[self.recognised], minlength=classes).tolist()


@dataclass
class Recogniser:
    members: list[nn.Module]
    classes: int
    threshold: float = LEAST

    @torch.no_grad()
    def __call__(self, images: Float[Tensor, "images channels height width"]) -> Recognition:
        device = next(self.members[0].parameters()).device
        found = [self._each(part.to(device)) for part in images.split(1000)]
        label, confidence = (torch.cat(parts).cpu() for parts in zip(*found, strict=True))
        return Recognition(label, confidence, (confidence >= self.threshold) & (label < self.classes))

    def _each(self, images: Tensor) -> tuple[Tensor, Tensor]:
        probability = torch.stack([member(images).softmax(-1) for member in self.members])
        label = probability.mean(0).argmax(-1)
        return label, probability.gather(-1, label.expand(len(self.members), -1).unsqueeze(-1)).squeeze(-1).amin(0)


def pixels(values: np.ndarray, array: Array) -> Float[Tensor, "images channels height width"]:
    """The levels of a file, from 0 to 1, channels first."""
    bright = (torch.as_tensor(values.astype(np.float32)) - array.low) / max(array.levels - 1, 1)
    return bright.movedim(-1, 1) if array.channels_last else bright.reshape(len(bright), -1, *bright.shape[-2:])


def network(channels: int, outputs: int) -> nn.Module:
    def layer(inputs: int, width: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]

    seen = [*layer(channels, 32), nn.MaxPool2d(2), *layer(32, 64), nn.MaxPool2d(2), *layer(64, 64), nn.AdaptiveAvgPool2d(4)]
    return nn.Sequential(*seen, nn.Flatten(), nn.Dropout(0.2), nn.Linear(1024, 128), nn.ReLU(), nn.Linear(128, outputs))


def uniform(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    return torch.rand(*shape, generator=generator, device=generator.device)


def moved(images: Tensor, generator: torch.Generator) -> Tensor:
    """Each a little turned, scaled and shifted."""
    turn, scale, right, down = (2 * uniform((4, len(images)), generator) - 1).unbind()
    turn, scale = 0.2 * turn, 1 + 0.1 * scale
    cos, sin = turn.cos() * scale, turn.sin() * scale
    rows = [torch.stack([cos, -sin, 0.12 * right], -1), torch.stack([sin, cos, 0.12 * down], -1)]
    grid = F.affine_grid(torch.stack(rows, 1), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, align_corners=False)


def pairs(labels: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Rows, and for each of them a row of another class."""
    other = torch.randperm(len(labels), generator=generator, device=generator.device)
    first = (labels != labels[other]).nonzero().squeeze(1)
    return first, other[first]


def shuffled(images: Tensor, generator: torch.Generator) -> Tensor:
    """Every pixel from an image of its own."""
    return images.gather(0, uniform(images.shape, generator).argsort(0))


def junk(images: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
    """What is no image: blends, where both are there to at least 30 %; shuffled pixels; noise."""
    first, second = pairs(labels, generator)
    share = 0.3 + 0.4 * uniform((len(first), 1, 1, 1), generator)
    few = max(1, len(images) // 4)
    noise = uniform((few, *images.shape[1:]), generator)
    return torch.cat([torch.lerp(images[first], images[second], share), shuffled(images, generator)[:few], noise])


def train_recogniser(
    images: Float[Tensor, "images channels height width"],
    labels: Int[Tensor, "images"],
    steps: int = 2000,
    members: int = 3,
    batch: int = 256,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Recogniser:
    """Networks that differ by their start and the order of their data; a quarter of each batch is junk."""
    classes = int(labels.max()) + 1
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    held, kept = order.split([int(HELD * len(order)), len(order) - int(HELD * len(order))])
    trained = []
    for member in range(members):
        with torch.random.fork_rng(devices=[device] if torch.device(device).type == "cuda" else []):
            torch.manual_seed(seed * 1009 + member)
            trained.append(_fit(network(images.shape[1], classes + 1).to(device), images[kept], labels[kept], steps, batch))
    recogniser = Recogniser(trained, classes)
    confidence = recogniser(images[held]).confidence
    recogniser.threshold = max(LEAST, float(confidence.quantile(1 - PASSING)))
    return recogniser


def _fit(model: nn.Module, images: Tensor, labels: Tensor, steps: int, batch: int) -> nn.Module:
    """AdamW, its rate falling to 0."""
    device = next(model.parameters()).device
    images, labels = images.to(device), labels.to(device)
    generator = torch.Generator(device).manual_seed(int(torch.randint(2**31, ())))  # on the device
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01, fused=True)
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = 2e-3 * min(1.0, (step + 1) / 50) * (1 - step / steps)
        rows = torch.randint(len(images), (batch,), generator=generator, device=device)
        x, y = moved(images[rows], generator), labels[rows]
        none = junk(x[: batch // 4], y[: batch // 4], generator)
        x, y = torch.cat([x, none]), torch.cat([y, y.new_full((len(none),), model[-1].out_features - 1)])  # type: ignore
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    return model.eval()


def controls(images: Tensor, labels: Tensor, seed: int = 0) -> dict[str, Tensor]:
    """What must not pass for an image, made of real ones; the last is of a kind that the networks were not trained on."""
    generator = torch.Generator().manual_seed(seed)
    first, second = pairs(labels, generator)
    upper, lower = images[first].chunk(2, -2)[0], images[second].chunk(2, -2)[1]
    return {
        "noise": uniform(images.shape, generator),
        "independent pixels": shuffled(images, generator),
        "means of two classes": (images[first] + images[second]) / 2,
        "halves of two classes": torch.cat([upper, lower], -2),
    }
