"""The law of a small step on a curved space: along the geodesic from x in the direction v = h b + sqrt(h g^2) z, z normal in
the tangent plane.

Where v leads the density is that of v over the volume that exp_x stretches a unit of the plane to,

    log p(y) = -d/2 log(2 pi h g^2) - |v - h b|^2/(2 h g^2) - log J(|v|),        exp_x(v) = y,

with v the shortest: those that go round, less than e^{-pi^2/2hg^2} of it, are left out.  Two such steps from one x differ
by their v alone, so that ratios of their densities have no J.
"""

from math import pi

from torch import Tensor

from unnoise.laws import Law
from unnoise.noise import NoiseSource
from unnoise.shapes import Float
from unnoise.spaces.manifold import Manifold


class GeodesicStep(Law):
    """From x along `along` and a normal vector of this variance; `draw` is the space's own step."""

    def __init__(self, space: Manifold, x: Tensor, along: Tensor, variance: Float[Tensor, "batch"]):
        self.space, self.x, self.along, self.variance = space, x, along, variance

    def log_prob(self, x: Tensor) -> Float[Tensor, "batch"]:
        v = self.space.towards(self.x.double(), x.double())
        variance = self.variance.double()
        square = self.space.square_length(v - self.along.double())
        flat = -0.5 * self.space.dimension * (2 * pi * variance).log() - square / (2 * variance)
        return flat - self.space.log_stretch(self.space.square_length(v).sqrt())

    def kl(self, other: Law) -> Float[Tensor, "batch"]:
        """Of steps from the same x: of normal vectors in its tangent plane."""
        if not isinstance(other, GeodesicStep):
            raise TypeError(f"the divergence of a step along a geodesic from a {type(other).__name__} is not known")
        ratio = self.variance.double() / other.variance.double()
        gap = self.space.square_length((self.along - other.along).double()) / (2 * other.variance.double())
        return gap + 0.5 * self.space.dimension * (ratio - 1 - ratio.log())

    def draw(self, noise: NoiseSource) -> Tensor:
        ones = [1] * (self.x.ndim - 1)
        z = self.space.tangent_normal(self.x, noise)
        return self.space.carry(self.x, self.along + self.variance.sqrt().to(self.x.dtype).reshape(-1, *ones) * z)
