"""Further losses of a first stage, on the mean of p(x | z): what a bound does not ask for, and eyes do.

    Perceptual(weight, features)    weight D |f(x) - f(mean)|^2, f the normalised features of a network
    Adversarial(weight)             -weight D c(mean), c a critic, trained to tell patches of data from means (hinge loss)

D is the number of coordinates of x.  Features are those of any network that returns one tensor or several, or of a
classifier that is trained here: on labels, `classifier(x, labels)`, or, where there are none, on how an image was turned or
mirrored, which is known without asking.

These change which encoder and decoder come out, never that the bound is one.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unnoise.latent.data_laws import DataLaw
from unnoise.shapes import Float, Int, Tree

WIDTH, UPDATES, BATCH = 16, 200, 64  # of networks here, and the training of a classifier
FEATURE = 1e-6  # added to the norm of features
BEGINS = 0.25  # the share of a first stage after which the critic has its say


class Extra:
    """A loss per row of a batch x and of the mean that its decoder gives."""

    def check(self, data: DataLaw) -> None:
        """Refuses data that it is not for."""
        if len(data.shape) not in (2, 3) or not hasattr(data, "mean") or type(data).mean is DataLaw.mean:
            raise ValueError(
                f"{type(self).__name__} compares images of numbers, [height, width] or [channels, height, width], and this "
                f"data has the law {type(data).__name__} of shape {list(data.shape)}: leave it out"
            )

    def begin(self, x: Tree, data: DataLaw, device: torch.device, seed: int) -> None:
        """With some rows, before the first update."""

    def loss(self, x: Tree, mean: Tensor | None, done: float) -> Float[Tensor, "batch"]:
        raise NotImplementedError(f"{type(self).__name__} does not say its loss: write loss(x, mean, done)")


def as_images(x: Any, data: DataLaw) -> Float[Tensor, "batch channels height width"]:
    return x.reshape(len(x), -1, *data.shape[-2:]).float()


class PatchNetwork(nn.Module):
    """Convolutions at three scales; `out` numbers for each image, or for each patch."""

    def __init__(self, channels: int, out: int, patches: bool = False):
        super().__init__()
        sizes = [channels, WIDTH, 2 * WIDTH, 4 * WIDTH]
        self.layers = nn.ModuleList(
            nn.Conv2d(before, after, 3, stride=1 if i == 0 else 2, padding=1)
            for i, (before, after) in enumerate(zip(sizes, sizes[1:], strict=False))
        )
        self.out, self.patches = nn.Conv2d(sizes[-1], out, 1), patches

    def features(self, x: Tensor) -> list[Tensor]:
        found = []
        for layer in self.layers:
            x = F.leaky_relu(layer(x), 0.2)
            found.append(x)
        return found

    def forward(self, x: Tensor) -> Float[Tensor, "batch out"]:
        out = self.out(self.features(x)[-1])
        return out.flatten(1) if self.patches else out.mean((2, 3))


def turned(x: Float[Tensor, "batch channels height width"], how: Int[Tensor, "batch"]) -> Tensor:
    """Each image in one of four positions: quarter turns of squares, else mirrored along its sides."""
    square = x.shape[-2] == x.shape[-1]
    all_ways = [torch.rot90(x, i, (2, 3)) for i in range(4)] if square else [x, x.flip(2), x.flip(3), x.flip(2, 3)]
    return torch.stack(all_ways, 1)[torch.arange(len(x), device=x.device), how]


def classifier(
    x: Float[Tensor, "rows channels height width"], labels: Int[Tensor, "rows"] | None = None, *, seed: int
) -> PatchNetwork:
    """A small classifier of images, by their labels or by how they are turned; its features are what it is for."""
    x = x.float()
    with torch.enable_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = PatchNetwork(x.shape[1], 4 if labels is None else int(labels.max()) + 1).to(x.device)
        optimiser = torch.optim.Adam(network.parameters(), lr=2e-3)
        for _ in range(UPDATES):
            rows = torch.randint(len(x), (min(BATCH, len(x)),)).to(x.device)
            own = torch.randint(4, (len(rows),)).to(x.device) if labels is None else labels.to(x.device)[rows]
            seen = turned(x[rows], own) if labels is None else x[rows]
            optimiser.zero_grad()
            F.cross_entropy(network(seen), own).backward()
            optimiser.step()
    return network.eval().requires_grad_(False)


class Perceptual(Extra):
    """`features`: a network of images [batch, channels, height, width] that returns one tensor or several."""

    def __init__(self, weight: float, features: Callable[[Tensor], Any] | None = None):
        self.weight, self.features = weight, features

    def begin(self, x: Tree, data: DataLaw, device: torch.device, seed: int) -> None:
        self.data = data
        if self.features is None:
            self.features = classifier(as_images(x, data), seed=seed).features

    def loss(self, x: Tree, mean: Tensor | None, done: float) -> Float[Tensor, "batch"]:
        assert self.features is not None
        real, made = (self.features(as_images(value, self.data)) for value in (x, mean))
        pairs = zip(real, made, strict=True) if isinstance(real, list | tuple) else [(real, made)]
        gaps = [(self._normed(a) - self._normed(b)).square().sum(1).flatten(1).mean(1) for a, b in pairs]
        return self.weight * self.data.coordinates * torch.stack(gaps).mean(0)

    def _normed(self, h: Tensor) -> Tensor:
        return h / (h.square().sum(1, keepdim=True) + FEATURE).sqrt()


class Adversarial(Extra):
    def __init__(self, weight: float, lr: float = 1e-3):
        self.weight, self.lr = weight, lr

    def begin(self, x: Tree, data: DataLaw, device: torch.device, seed: int) -> None:
        self.data = data
        self.critic = PatchNetwork(as_images(x, data).shape[1], 1, patches=True).to(device)
        self.optimiser = torch.optim.Adam(self.critic.parameters(), lr=self.lr, betas=(0.5, 0.9))

    def loss(self, x: Tree, mean: Tensor | None, done: float) -> Float[Tensor, "batch"]:
        """An update of the critic on the way."""
        real, made = as_images(x, self.data), as_images(mean, self.data)
        self.critic.requires_grad_(True)
        told = F.relu(1 - self.critic(real)).mean() + F.relu(1 + self.critic(made.detach())).mean()
        self.optimiser.zero_grad()
        told.backward()
        self.optimiser.step()
        self.critic.requires_grad_(False)
        share = self.weight if done >= BEGINS else 0.0
        return -share * self.data.coordinates * self.critic(made).mean(1)
