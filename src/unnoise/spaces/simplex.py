"""Compositions: rows of shares that are not negative and sum to one.

A generator on the simplex is a drift b whose entries sum to 0 and a rate g^2 of the Wright-Fisher noise, [batch, 1],

    L phi = b . D phi + 1/2 g^2 sum_ij a_ij d_i d_j phi,       a_ij = x_i (delta_ij - x_j).

Since a sends the vector of ones to 0, it does not matter how phi is continued off the simplex.  Densities are of the
Lebesgue measure of the first size - 1 entries y, the last being 1 - |y|; in them div a = 1 - size x, and

    L* q = -sum_i d_i [b_i q - 1/2 sum_j d_j (g^2 a_ij q)],
    reversed in time under q: drift -b + g^2 (1 - size x) + a (grad g^2 + g^2 grad log q).

On vectors of sum 0 the inverse of a is diag(1/x), so that two drifts are 1/2 sum_i (b_i - b'_i)^2/(g^2 x_i) apart.

A step of the length h is a Dirichlet law of the mean m = x + h b and the concentration 1/(h g^2) - 1: it has the covariance
h g^2 (diag(m) - m m^T), and never leaves the simplex.

Entries that are 0 lie in the simplex: a process may start there, and leaves at once.  A density of data with zeros does not
exist; `inside` mixes a little of the even composition into each row.
"""

from math import lgamma

import numpy as np
import torch
from torch import Tensor

from unnoise.checks import unread
from unnoise.gamma_laws import LEAST, Dirichlet
from unnoise.noise import NoiseSource
from unnoise.shapes import AnyState, Float
from unnoise.spaces.base import ArraySpace, Field, Frozen, Function
from unnoise.spaces.euclidean import differentiable, diffusions_differ
from unnoise.spaces.local import Local

NO_JUMPS = "compositions have no neighbours, and no jumps are known on them"
ROUNDING = 1e-4  # by which a sum in single precision may differ from 1
LEAST_CONCENTRATION = 1e-3  # of a step that is longer than the noise allows


class Simplex(ArraySpace):
    """Rows of `size` shares that sum to one."""

    reference = "Lebesgue measure of the first size - 1 shares"

    def __init__(self, size: int):
        if isinstance(size, bool) or not isinstance(size, int) or size < 2:
            raise ValueError(f"size = {size!r}: a composition has a whole number of parts, at least 2")
        super().__init__((size,))
        self.size = size

    @property
    def dimension(self) -> int:
        return self.size - 1

    @property
    def entries(self) -> int:
        return self.size

    @property
    def log_volume(self) -> float:
        return -lgamma(self.size)

    def check(self, x: AnyState, name: str = "x") -> Tensor:
        x = self.check_shape(x, name)
        if not x.dtype.is_floating_point:
            raise TypeError(f"{name} has dtype {x.dtype}, but shares are floats: pass {name}.float()")
        if unread(x, self):
            self._check_rows(x.detach(), name)
        return x

    def _check_rows(self, x: Tensor, name: str) -> None:
        total, least = x.sum(-1), x.amin(-1)
        wrong = ~(((total - 1).abs() < ROUNDING) & (least >= 0))
        if not bool(wrong.any()):
            return
        i = int(wrong.nonzero()[0, 0])
        if not bool(x[i].isfinite().all()):
            found, remedy = f"has the share {float(x[i][~x[i].isfinite()][0]):g}", "drop or impute rows that are not finite"
        elif float(least[i]) < 0:
            found, remedy = f"has the negative share {float(least[i]):g}", f"pass space.project({name}), which cuts it to 0"
        else:
            found, remedy = f"sums to {float(total[i]):g}", f"pass space.project({name}), which divides by the sum"
        raise ValueError(f"row {i} of {name} {found}, and shares of {self} are at least 0 and sum to 1: {remedy}")

    def project(self, x: Tensor) -> Tensor:
        """Negative shares are cut to 0, and each row is divided by its sum."""
        kept = x.clamp_min(0)
        return kept / kept.sum(-1, keepdim=True).clamp_min(LEAST)

    def inside(self, x: Tensor, least: float = 1e-3) -> Tensor:
        """Compositions without zeros: (1 - size least) x + least."""
        if not 0 < least < 1 / self.size:
            raise ValueError(f"least = {least:g}: a share of each part lies above 0 and below 1/{self.size}")
        return (1 - self.size * least) * self.check(x) + least

    def vertices(self, category: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Categories as compositions of one part alone."""
        return torch.nn.functional.one_hot(category, self.size).to(dtype)

    def tangent(self, v: Tensor, x: Tensor) -> Tensor:
        return v - v.mean(-1, keepdim=True)

    def nodes(self, count: int) -> tuple[Tensor, Float[Tensor, "nodes"]]:
        """Gauss's, share by share of what is left: x_i = s_i prod_{j < i} (1 - s_j)."""
        if self.size > 4:
            raise ValueError(f"a rule over {self} is out of reach (at most size 4): draw instead")
        z, w = np.polynomial.legendre.leggauss(count)
        s, weight = torch.as_tensor((z + 1) / 2), torch.as_tensor(w / 2)
        grid = torch.cartesian_prod(*[s] * self.dimension).reshape(-1, self.dimension)
        weights = torch.cartesian_prod(*[weight] * self.dimension).reshape(-1, self.dimension).prod(-1)
        left, parts = torch.ones(len(grid), dtype=torch.float64), []
        for i in range(self.dimension):
            weights, own = weights * left, grid[:, i] * left  # dx_i = left ds_i
            parts.append(own)
            left = left * (1 - grid[:, i])
        return torch.stack([*parts, left], -1), weights

    # a generator

    def noise_matrix(self, x: Tensor, v: Tensor) -> Tensor:
        """a v = x (v - x . v)."""
        return x * (v - (x * v).sum(-1, keepdim=True))

    def act(self, local: Local, phi: Function, x: Tensor) -> Float[Tensor, "batch"]:
        self.refuse_parts(local, log_rates=NO_JUMPS, jumps=NO_JUMPS)
        with torch.inference_mode(False), torch.enable_grad():
            leaf, again = differentiable(x)
            total, slope = torch.zeros_like(leaf[:, 0]), _slope(phi(leaf), leaf)
            if local.drift is not None:
                total = total + (local.drift * slope).sum(-1)
            if local.diffusion is not None:
                rows = torch.stack([_slope(slope[:, i], leaf) for i in range(self.size)], 1)
                second = torch.stack([self.noise_matrix(leaf, rows[:, i])[:, i] for i in range(self.size)], -1).sum(-1)
                total = total + 0.5 * local.diffusion.squeeze(-1) * second
            return total if again else total.detach()

    def adjoint(self, field: Field, q: Function, x: Tensor) -> Float[Tensor, "batch"]:
        self.refuse_parts(field(x), log_rates=NO_JUMPS, jumps=NO_JUMPS)
        with torch.inference_mode(False), torch.enable_grad():
            y, again = differentiable(x[:, :-1])
            whole = torch.cat([y, 1 - y.sum(-1, keepdim=True)], -1)
            local, density = field(whole), q(whole)
            total = torch.zeros_like(density)
            for i in range(self.dimension):
                current = torch.zeros_like(density) if local.drift is None else local.drift[:, i] * density
                if local.diffusion is not None:
                    unit = torch.zeros_like(whole)
                    unit[:, i] = 1.0
                    row = self.noise_matrix(whole, unit)
                    for j in range(self.dimension):
                        entry = local.diffusion.squeeze(-1) * row[:, j] * density
                        current = current - 0.5 * _slope(entry, y)[:, j]
                total = total - _slope(current, y)[:, i]
            return total if again else total.detach()

    def reverse(self, field: Field, log_q: Function, x: Tensor) -> Local:
        def slope(function: Function) -> Tensor:
            with torch.inference_mode(False), torch.enable_grad():
                leaf, again = differentiable(x)
                value = _slope(function(leaf), leaf)
                return value if again else value.detach()

        return self._turned(field, slope(log_q), x, slope)

    def backward(self, field: Field, slope: Tensor, x: Tensor) -> Local:
        def of_rate(function: Function) -> Tensor:
            with torch.inference_mode(False), torch.enable_grad():
                leaf, again = differentiable(x)
                value = _slope(function(leaf), leaf)
                return value if again else value.detach()

        return self._turned(field, slope, x, of_rate)

    def slope_shape(self, x: Tensor) -> tuple[int, ...]:
        return tuple(x.shape)

    def _turned(self, field: Field, score: Tensor, x: Tensor, slope) -> Local:
        forward = field(x)
        self.refuse_parts(forward, log_rates=NO_JUMPS, jumps=NO_JUMPS)
        drift = None if forward.drift is None else -forward.drift
        if forward.diffusion is not None:

            def rate(y: Tensor) -> Tensor:
                return field(y).diffusion.squeeze(-1) + 0.0 * y[:, 0]  # type: ignore[union-attr]

            back = forward.diffusion * (1 - self.size * x + self.noise_matrix(x, score))
            back = back + self.noise_matrix(x, slope(rate))
            drift = back if drift is None else drift + back
        return Local(drift, forward.diffusion)

    def freeze(self, local: Local, x: Tensor) -> Frozen:
        self.refuse_parts(local, log_rates=NO_JUMPS, jumps=NO_JUMPS)
        drift = torch.zeros_like(x) if local.drift is None else local.drift
        diffusion = torch.zeros_like(x[:, :1]) if local.diffusion is None else local.diffusion
        return {"drift": drift, "diffusion": diffusion.expand(len(x), 1)}

    def move(self, frozen: Frozen, local: Local, x: Tensor, h: Tensor, noise: NoiseSource) -> Tensor:
        mean = self._mean(frozen, x, h)
        spread = (h * frozen["diffusion"]).double()
        moved = Dirichlet(self._concentration(spread) * mean, x).draw(noise)
        return torch.where(spread > 0, moved, mean.to(x.dtype))

    def step_law(self, local: Local, x: Tensor, h: Tensor) -> Dirichlet:
        frozen = self.freeze(local, x)
        return Dirichlet(self._concentration((h * frozen["diffusion"]).double()) * self._mean(frozen, x, h), x)

    def _mean(self, frozen: Frozen, x: Tensor, h: Tensor) -> Tensor:
        return self.project((x.double() + h * frozen["drift"].double()).clamp_min(LEAST))

    def _concentration(self, spread: Tensor) -> Tensor:
        return (1 / spread.clamp_min(1e-12) - 1).clamp_min(LEAST_CONCENTRATION)

    def divergence(self, true: Local, model: Local, x: Tensor) -> Float[Tensor, "batch"]:
        for local in (true, model):
            self.refuse_parts(local, log_rates=NO_JUMPS, jumps=NO_JUMPS)
        first, second = (torch.zeros_like(x) if local.drift is None else local.drift for local in (true, model))
        gap = first - second
        if true.diffusion is None:
            total = torch.where((gap != 0).any(-1), torch.inf, 0.0)
        else:
            total = 0.5 * (gap.square() / (true.diffusion * x.clamp_min(LEAST))).sum(-1)
        return torch.where(diffusions_differ(true, model, x), torch.inf, total)

    def __repr__(self) -> str:
        return f"Simplex({self.size})"


def _slope(value: Tensor, leaf: Tensor) -> Tensor:
    """The gradient of one number per row, differentiable again; 0 of what does not depend on it."""
    if not value.requires_grad:
        return torch.zeros_like(leaf)
    found = torch.autograd.grad(value.sum(), leaf, create_graph=True, allow_unused=True)[0]
    return torch.zeros_like(leaf) if found is None else found
