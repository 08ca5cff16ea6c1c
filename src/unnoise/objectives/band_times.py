"""Times for the bound of a code, whose rate lies in a band of noise levels.

Vectors that stand for data are told apart for certain at little noise and not at all at much: the rate per unit of log-SNR
falls exponentially in SNR on the one side, and like SNR on the other.  A code says how it goes about (`Code.band`): falling
levels l_0 > l_1 > ... of log-SNR, and a weight for each interval between two.  Times are drawn, stratified, with densities
in log-SNR in proportion to the weights.  Outside the rate is small, but it is there, and a share c of the times is even
over all of [low, 1]:

    density   c/(1 - low) + (1 - c) (-d log_snr/dt) w_i/sum_j w_j (l_j - l_{j+1}),      l_i >= log_snr(t) >= l_{i+1}.

Towards t = 1 the rate per unit of t is bounded, since -d SNR/dt is: even times suffice there.  A learned schedule is not
differentiated through the places of its times, as the estimate is unbiased given any.
"""

import torch
from torch import Tensor

from unnoise.objectives.times import LAST, Times, strata
from unnoise.schedules import Schedule
from unnoise.shapes import Float


class BandTimes(Times):
    """Where the log-SNR of `schedule` lies between the `levels`, as the `weights` say, but for a `share` even in time."""

    def __init__(
        self,
        schedule: Schedule,
        levels: Float[Tensor, "levels"],
        weights: Float[Tensor, "intervals"],
        share: float = 0.1,
        draws: int = 1,
    ):
        levels, weights = (torch.as_tensor(v, dtype=torch.float64) for v in (levels, weights))
        if len(levels) != len(weights) + 1 or not bool((levels.diff() < 0).all()):
            raise ValueError(
                f"{len(levels)} levels for {len(weights)} weights: pass falling log-SNRs, one more than weights"
            )
        if not (bool((weights >= 0).all()) and float(weights.sum()) > 0):
            raise ValueError("weights of intervals are at least 0, and some are more")
        if not 0 < share < 1:
            raise ValueError(f"share = {share}: a part of the times above 0 and below 1 has to be even over all of [0, 1]")
        self.schedule, self.levels, self.weights = schedule, levels, weights
        self.share, self.draws = float(share), draws
        self._there: dict[torch.device, tuple[Tensor, Tensor]] = {}  # levels and weights, once on every device

    def _table(self, low: float, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Levels as far as they lie between the times `low` and 1, the density in log-SNR of each interval, and the share
        of even times: all, where nothing is left of the band."""
        if like.device not in self._there:
            self._there[like.device] = self.levels.to(like.device), self.weights.to(like.device)
        levels, weights = self._there[like.device]
        first, last = (self.schedule.log_snr(torch.full_like(levels[:1], end)).detach() for end in (low, LAST))
        levels = levels.minimum(first).maximum(last)
        whole = (weights * -levels.diff()).sum()
        share = torch.where(whole > 0, self.share, 1.0)
        return levels, weights / whole.clamp_min(1e-300), share

    @torch.no_grad()
    def draw(self, noise, low):
        u = strata(len(noise.rows), noise)
        levels, density, share = self._table(low, u)
        reached = torch.cat([u.new_zeros(1), (density * -levels.diff()).cumsum(0)])
        v = ((u - share) / (1 - share).clamp_min(1e-300)).clamp(0, 1)
        place = (torch.searchsorted(reached, v, right=True) - 1).clamp(0, len(density) - 1)
        level = levels[place] - (v - reached[place]) / density[place].clamp_min(1e-300)
        inside = self.schedule.time_of_log_snr(level.maximum(levels[place + 1]))
        return torch.where(u < share, low + (1 - low) * u / share, inside).clamp(low, LAST)

    @torch.no_grad()
    def density(self, t, low):
        levels, density, share = self._table(low, t)
        level = self.schedule.log_snr(t)
        place = torch.searchsorted(-levels, -level) - 1
        inside = (place >= 0) & (place < len(density))
        here = density[place.clamp(0, len(density) - 1)] * -self.schedule.d_log_snr(t)
        return share / (1 - low) + (1 - share) * torch.where(inside, here, 0.0)
