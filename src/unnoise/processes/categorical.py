"""Categories with one noise law p for all times: masking, uniform noise, and any other law.

    Q_{t|s} = alpha_{t|s} I + (1 - alpha_{t|s}) p 1^T                            (eq:interpolation-discretediff)
    R_t     = -(alpha'/alpha) (p 1^T - I)                                           (eq:Rate-matrix-expression)

Masking adds one state, whose index is `size`, and has p = delta_MASK; predictions carry no mass on MASK.  `Uniform` has
p = 1/K over the data's own categories.  `Interpolation` takes any law of `noise_laws`.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from unnoise.processes import noise_laws
from unnoise.processes.rank_one import FixedNoise
from unnoise.schedules import Schedule
from unnoise.spaces import Finite

Sizes = int | Sequence[int]


class Masking(FixedNoise):
    """Absorbing noise: each coordinate is replaced by MASK, index `size`, at a time of its own."""

    absorbing = True

    def __init__(self, size: Sizes, shape: int | Sequence[int] | None = None, schedule: Schedule | None = None):
        space = Finite(size, shape)
        super().__init__(space, noise_laws.mask(space.size), schedule)
        self.mask = space.size

    def movable(self, x_t: Tensor) -> Tensor:
        return x_t == self.mask


class Uniform(FixedNoise):
    """Each coordinate is replaced by a uniform draw from its own categories."""

    def __init__(self, size: Sizes, shape: int | Sequence[int] | None = None, schedule: Schedule | None = None):
        space = Finite(size, shape)
        super().__init__(space, noise_laws.uniform(space.size), schedule)

    def movable(self, x_t: Tensor) -> Tensor:
        return torch.ones_like(x_t, dtype=torch.bool)

    def carry_over(self, x_t: Tensor, log_theta: Tensor) -> Tensor:
        return log_theta


class Interpolation(FixedNoise):
    """Each coordinate is replaced by a draw from a noise law: `noise_laws.frequencies(x0, size)`, a tensor of probabilities.

    A law with more states than categories adds them to the state space: `noise_laws.uniform_with_mask(size)` adds MASK.
    """

    def __init__(
        self,
        size: Sizes,
        shape: int | Sequence[int] | None = None,
        noise: noise_laws.NoiseLaw | Tensor | None = None,
        schedule: Schedule | None = None,
    ):
        space = Finite(size, shape)
        if noise is None:
            raise ValueError("an Interpolation needs its noise law: pass probabilities, or one of unnoise.noise_laws")
        law = noise if isinstance(noise, noise_laws.NoiseLaw) else noise_laws.given(noise)
        super().__init__(space, law, schedule)
        self.mask = space.size if law.states > space.size else None
