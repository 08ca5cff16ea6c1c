"""The law of a small step on a curved space: along the geodesic from x in the direction v = h b + sqrt(h g^2) z, z normal in
the tangent plane.

The density at y is that of every v that leads there, over the volume that exp_x stretches a unit of the plane to:

    p(y) = sum_k N(v_k; h b, h g^2)/J(|v_k|),        exp_x(v_k) = y.

Straight ways close after a length of 2 pi, so the v_k are (r + 2 pi k) u, with u the direction of the shortest one and r
its length: beyond the first they go round, also the other way (k < 0), and count where a step is long.
"""

from math import pi

import torch
from torch import Tensor

from unnoise.laws import Law
from unnoise.noise import NoiseSource
from unnoise.shapes import Float
from unnoise.spaces.manifold import Manifold

WINDINGS = 3  # ways round, of a step
SMALLEST = 1e-15  # a way shorter than this has any direction


class GeodesicStep(Law):
    """From x along `along` and a normal vector of this variance; `draw` is the space's own step."""

    def __init__(self, space: Manifold, x: Tensor, along: Tensor, variance: Float[Tensor, "batch"]):
        self.space, self.x, self.along, self.variance = space, x, along, variance

    def log_prob(self, x: Tensor) -> Float[Tensor, "batch"]:
        v, along = self.space.towards(self.x.double(), x.double()), self.along.double()
        variance, ones = self.variance.double(), [1] * (self.x.ndim - 1)
        length = self.space.square_length(v).sqrt().clamp_min(SMALLEST)
        parts = []
        for k in range(-WINDINGS, WINDINGS + 1):
            way = length + 2 * pi * k
            square = self.space.square_length(v * (way / length).reshape(-1, *ones) - along)
            parts.append(-square / (2 * variance) - self.space.log_stretch(way.abs()))
        return torch.stack(parts).logsumexp(0) - 0.5 * self.space.dimension * (2 * pi * variance).log()

    def kl(self, other: Law) -> Float[Tensor, "batch"]:
        """Of steps from the same x: of normal vectors in its tangent plane, which is at least that of where they lead."""
        if not isinstance(other, GeodesicStep):
            raise TypeError(f"the divergence of a step along a geodesic from a {type(other).__name__} is not known")
        ratio = self.variance.double() / other.variance.double()
        gap = self.space.square_length((self.along - other.along).double()) / (2 * other.variance.double())
        return gap + 0.5 * self.space.dimension * (ratio - 1 - ratio.log())

    def draw(self, noise: NoiseSource) -> Tensor:
        ones = [1] * (self.x.ndim - 1)
        z = self.space.tangent_normal(self.x, noise)
        return self.space.carry(self.x, self.along + self.variance.sqrt().to(self.x.dtype).reshape(-1, *ones) * z)
