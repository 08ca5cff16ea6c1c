"""The zig-zag process with the target exp(-U): every coordinate moves at the speed c, and turns where that leads uphill.

    generator    L f = v . grad_x f + sum_i lambda_i(z) [f(x, R_i v) - f(x, v)],    lambda_i = (v_i d_i U(x))_+ + refresh

Since lambda_i(R_i z) - lambda_i(z) = -v_i d_i U, the law exp(-U) x fair signs is left as it is, whatever the refreshment.
The time of the model is [0, 1]; the process runs for `duration` of its own in it, long enough to forget the data.

Turns are found by inversion where U = |x|^2/2: along the way the rate of i is (y + c^2 s)_+ from y = v_i x_i, and its
integral reaches an exponential E at s = (-y)_+/c^2 + 2E/(y_+ + sqrt(y_+^2 + 2 c^2 E)).  Under any other U they are thinned:
with a bound `growth` on d/ds v_i d_i U(x + s v) candidates come at the rate (y + growth s)_+ and are turns with the
probability of the true rate over that.  Candidates are few where the bound is close.

Backwards the state moves with -v and turns i at the rate lambda_i(R_i z) p_t(R_i z)/p_t(z).
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from unnoise.laws import Law
from unnoise.noise import NoiseSource
from unnoise.processes.finite_speed import MOST_JUMPS
from unnoise.processes.flips import FlippingVelocity, NormalAndCoins

ROUNDING = 1e-4  # relative, by which a rate in float32 may exceed its bound


class ZigZag(FlippingVelocity):
    """`ZigZag(shape)` rests in N(0, 1) and fair signs; with `potential` U, one number per row, `growth` its bound and
    `prior` (rows) the law exp(-U) x signs.  `cap` is the largest ratio of densities of the model."""

    def __init__(
        self,
        shape: int | Sequence[int] = (),
        duration: float = 6.0,
        refresh: float = 0.2,
        cap: float = 30.0,
        visits: int | None = None,
        prior: Callable[[int], Law] | None = None,
        speed: float = 1.0,
        potential: Callable[[Tensor], Tensor] | None = None,
        growth: float | None = None,
    ):
        super().__init__(shape, speed, cap, visits, prior)
        if not 0 < duration < torch.inf:
            raise ValueError(f"duration = {duration:g}: pass how long the process runs in all, such as 6")
        if not 0 <= refresh < torch.inf:
            raise ValueError(f"refresh = {refresh:g}: a rate of turns anywhere is 0 or more")
        if potential is not None and (prior is None or growth is None):
            raise ValueError(
                "a potential needs growth=, a bound on d/ds v_i d_i U(x + s v), and prior=, the law exp(-U) x fair signs"
            )
        if potential is None and growth is not None:
            raise ValueError(f"growth = {growth:g} is that of a potential: pass potential=, or leave it out")
        if growth is not None and not 0 < growth < torch.inf:
            raise ValueError(f"growth = {growth:g}: pass a positive bound on how fast a slope grows along the way")
        self.separate = potential is None
        self.clock, self.refresh = float(duration), float(refresh)
        self.potential, self.growth = potential, float(growth or self.speed**2)

    def rest(self, rows: int, dtype: torch.dtype | None, device: torch.device | str | None) -> Law:
        return NormalAndCoins(torch.zeros(rows, *self.space.shape, dtype=dtype, device=device), 1.0, self.speed)

    def slopes(self, z: Tensor) -> Tensor:
        """v_i d_i U(x), the shape of x, float64."""
        x, v = z[:, 0], z[:, 1].double()
        if self.potential is None:
            return x.double() * v
        with torch.inference_mode(False), torch.enable_grad():
            leaf = x.detach().clone().requires_grad_()
            return torch.autograd.grad(self.potential(leaf).sum(), leaf)[0].double() * v

    def rates(self, z: Tensor) -> Tensor:
        return self.clock * (self.slopes(z).clamp_min(0) + self.refresh)

    def next_jump(self, z: Tensor, noise: NoiseSource, times: float = 1.0) -> tuple[Tensor, Tensor]:
        wait = torch.zeros(len(z), dtype=torch.float64, device=z.device)
        marks, row = torch.zeros(len(z), dtype=torch.int64, device=z.device), torch.arange(len(z), device=z.device)
        for k in range(MOST_JUMPS):
            own = noise.of(row).at("candidate", k)
            h, mark, taken = self._candidate(self.flow(z[row], wait[row]), own, times)
            wait[row] += h
            marks[row] = mark
            row = row[~taken & (wait[row] < 1)]  # what would come after the end is not asked for
            if not len(row):
                return wait, marks
        raise ValueError(f"growth = {self.growth:g} is so far above the slopes that no candidate is a turn: pass less")

    def _candidate(self, z: Tensor, noise: NoiseSource, times: float) -> tuple[Tensor, Tensor, Tensor]:
        """How long until the next one, of which coordinate, and whether it is a turn."""
        count, slopes = self.space.dimension, self.slopes(z).reshape(len(z), -1)
        rises, anywhere = (-noise.at("exponentials").uniform((2, count)).log() / times).unbind(1)
        uphill = slopes.clamp_min(0)
        climbs = (-slopes).clamp_min(0) / self.growth + 2 * rises / (uphill + (uphill**2 + 2 * self.growth * rises).sqrt())
        waits = torch.cat([climbs, anywhere / self.refresh if self.refresh else torch.full_like(climbs, torch.inf)], 1)
        h, which = waits.min(1)
        mark = which % count
        if self.potential is None:
            return h / self.clock, mark, torch.ones_like(mark, dtype=torch.bool)
        known = slopes.gather(1, mark.unsqueeze(1)).squeeze(1) + self.growth * h
        there = self.slopes(self.flow(z, h / self.clock)).reshape(len(z), -1).gather(1, mark.unsqueeze(1)).squeeze(1)
        if bool((there > known + ROUNDING * (1 + known.abs())).any()):
            i = int((there - known).argmax())
            raise ValueError(
                f"growth = {self.growth:g}: along a way of {float(h[i]):g} the slope of coordinate {int(mark[i])} came to "
                f"{float(there[i]):g}, above {float(known[i]):g}; pass a larger growth"
            )
        taken = (which >= count) | (noise.at("thin").uniform() * known < there)
        return h / self.clock, mark, taken

    def extra_repr(self) -> str:
        return f"{self.state_space!r}, duration={self.clock:g}, refresh={self.refresh:g}"
