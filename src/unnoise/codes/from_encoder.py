"""Representations of an encoder that is there already: z_0 = f(x), a vector for each position that has seen the whole text.

The encoder is frozen.  Its vectors are noised by a Gaussian process, and a network makes of z_t both the reverse process and
a law of every symbol, so that at the cut-off p(x | z_eps) = prod_k p(x^k | z_eps) reads the text.  Then

    -log p(x) <= KL(q(z_1 | f(x)) || p_1) + int_eps^1 rate dt + E[-log p(x | z_eps)]

holds for any f and any network.  Of the encoder nothing is asked but that it is a function of x: q(. | f(x)) is one law of
the path from z_1 to z_eps given x, and this is the variational bound of the model p(z_1) p(path) p(x | z_eps).
Where f has two texts at one place, the last term pays for telling them apart, at every cut-off.  What does not hold is a
limit: no network knows the places where vectors may be, as it does with a codebook, so that the rate is that of any numbers,
and grows like 1/t.  The cut-off is a part of the model: there noise still reads well, and is not yet dear.

The network returns [width + size] numbers for each position, (v, logits):

    E[z_0 | z_t] = (alpha z_t - sigma v)/(alpha^2 + sigma^2),      log p(x^k | z_t) = log softmax(logits).
"""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from unnoise.codes.base import Code
from unnoise.laws import Categorical
from unnoise.noise import NoiseSource
from unnoise.predictions import Clean, Prediction
from unnoise.processes import Process
from unnoise.shapes import AnyState, Clock, Float, Int, Tree
from unnoise.spaces import Finite

Encoder = Callable[[Int[Tensor, "batch *shape"]], Float[Tensor, "batch *shape width"]]


class ReadVectors(Clean):
    """E[z_0 | z_t], and a law of every symbol."""

    def __init__(self, value: Tensor, log_probs: Tensor, process: Any, z_t: Tensor, t: Clock):
        super().__init__(value, process, z_t, t)
        self.log_probs = log_probs


class FromEncoder(Code):
    """`encoder(x)` is [batch, *shape, width]; `settle(x)` brings its numbers to mean 0 and standard deviation 1 on data."""

    rounds = needs_network = True
    trained = False
    predicts = Clean
    space: Finite
    mean: Tensor
    std: Tensor

    def __init__(self, encoder: Encoder, space: Finite, width: int, cutoff: float = 0.05):
        super().__init__()
        self.encoder, self.space, self.width, self.cutoff = encoder, space, width, cutoff
        if isinstance(encoder, nn.Module):
            encoder.eval().requires_grad_(False)
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("std", torch.ones(width))

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the states."""
        return (*self.space.shape, self.width)

    def train(self, mode: bool = True) -> "FromEncoder":
        """The encoder stays as it is."""
        super().train(mode)
        if isinstance(self.encoder, nn.Module):
            self.encoder.eval()
        return self

    @torch.no_grad()
    def _vectors(self, x: Tensor) -> Tensor:
        found, wanted = self.encoder(x), (len(x), *self.shape)
        if tuple(found.shape) != wanted:
            raise ValueError(f"the encoder returned shape {tuple(found.shape)}; a vector for each position is {wanted}")
        if not bool(found.isfinite().all()):
            row = int((~found.isfinite()).flatten(1).any(1).nonzero()[0, 0])
            raise FloatingPointError(f"the encoder's vectors of row {row} are not finite: mend it, or drop the row")
        return found

    @torch.no_grad()
    def settle(self, x: Int[Tensor, "batch *shape"]) -> "FromEncoder":
        found = self._vectors(x).double().flatten(0, -2)
        std = found.std(0)
        if not bool((std > 1e-6 * found.abs().amax().clamp_min(1)).all()):
            flat = int((std <= 1e-6 * found.abs().amax().clamp_min(1)).nonzero()[0, 0])
            raise ValueError(f"number {flat} of the encoder's vectors is the same for all data: leave it out of the vectors")
        self.mean.copy_(found.mean(0))
        self.std.copy_(std)
        return self

    def prepare(self, rows: Any, seconds: float | None, device: torch.device, seed: int) -> bool:
        self.to(device).settle(rows(4096).to(device))
        return True

    def encode(self, x: Tree, noise: NoiseSource, condition: dict[str, Any]) -> tuple[Tree, dict[str, Tensor]]:
        return (self._vectors(cast(Tensor, x)) - self.mean) / self.std, {}

    def prediction(self, output: AnyState, process: Any, z_t: AnyState, t: Tree) -> ReadVectors:
        z, wanted = cast(Tensor, z_t), (len(z_t), *self.space.shape, self.width + self.space.size)
        if tuple(output.shape) != wanted:
            raise ValueError(
                f"the network returned shape {tuple(output.shape)}; here it returns {self.width} numbers and "
                f"{self.space.size} logits for each position, {wanted}"
            )
        times = process.times(t, z)
        alpha, sigma = process.schedule.alpha(times), process.schedule.sigma(times)
        whole = alpha.square() + sigma.square()
        on_z, on_v = (process.coefficient(value / whole, z) for value in (alpha, sigma))
        velocity, logits = output.split([self.width, self.space.size], -1)
        return ReadVectors(on_z * z - on_v * velocity, logits.log_softmax(-1), process, z, t)

    def law(self, z: Tree, t: float, process: Process, prediction: Prediction | None) -> Categorical:
        return Categorical(cast(ReadVectors, prediction).log_probs)
