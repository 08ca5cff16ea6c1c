"""Categories with one noise law p for all times: masking, uniform noise, and any other law.

    Q_{t|s} = alpha_{t|s} I + (1 - alpha_{t|s}) p 1^T                            (eq:interpolation-discretediff)
    R_t     = -(alpha'/alpha) (p 1^T - I)                                           (eq:Rate-matrix-expression)

Masking adds one state, whose index is `size`, and has p = delta_MASK; predictions carry no mass on MASK.  `Uniform` has
p = 1/K over the data's own categories.  `Interpolation` takes any law of `noise_laws`.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from unnoise.checks import ordered
from unnoise.generators.local import without_self
from unnoise.laws import LOG_ZERO, Categorical, log_coefficient
from unnoise.processes import noise_laws
from unnoise.processes.finite import log_minus
from unnoise.processes.rank_one import FixedNoise
from unnoise.schedules import Schedule
from unnoise.shapes import Clock
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

    def log_ratio_scale(self, x_t: Tensor, t: Clock) -> Tensor:
        """log alpha/(1 - alpha): q_t(y)/q_t(MASK) is this times the law of x_0 given the other coordinates."""
        keep, renew = self.log_coefficients(x_t, None, t, torch.float64)
        return (keep - renew).unsqueeze(-1)

    def step_from_ratio(self, x_t: Tensor, log_ratio: Tensor, s: Clock, t: Clock) -> tuple[Categorical, Tensor]:
        """(alpha_s - alpha_t) theta(y) to y and what is left of 1 - alpha_t to MASK, for a theta of any sum."""
        early, late = self.times(s, x_t, "s"), self.times(t, x_t)
        ordered(early, late)
        fall, here = self.schedule.alpha(early) * self.schedule.step_beta(early, late), torch.full_like(x_t, self.mask)
        fall, noised = (self.coefficient(log_coefficient(c), x_t, log_ratio.dtype) for c in (fall, self.schedule.beta(late)))
        log_theta = self._valid_only(log_ratio - self.log_ratio_scale(x_t, t).to(log_ratio.dtype))
        shown = without_self(log_theta, here) + fall.unsqueeze(-1)
        hidden, negative = log_minus(noised.expand(x_t.shape).unsqueeze(-1), shown.logsumexp(-1, keepdim=True))
        masks = (self.coefficient(self.schedule.beta(early), x_t, torch.float64) > 0).expand(x_t.shape).unsqueeze(-1)
        hidden = torch.where(masks, hidden, LOG_ZERO)  # at alpha_s = 1 there are none
        out, movable = shown.scatter(-1, here.unsqueeze(-1), hidden), self.movable(x_t).unsqueeze(-1)
        law = Categorical.normalised(torch.where(movable, out, self.log_one_hot(x_t, out.dtype)))
        return law, ~(negative & masks & movable).squeeze(-1)


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
