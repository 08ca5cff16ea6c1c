"""Spaces that are curved or closed: what else they are asked than a generator's questions.

    tangent(v, x)    the part of v that is tangent to the space at x
    carry(x, v)      where the straightest way from x in the direction v ends, after the length of v
    gradient(s, x)   the tangent vector of steepest ascent of a function with the ordinary derivatives s
    towards(x, y)    the shortest vector with carry(x, v) = y;   log_stretch of volumes along it
    log_volume       of the whole space, for the uniform law
    nodes(count)     points and weights of a rule for integrals over the space

Brownian motion on such a space is written by its generator 1/2 g^2 Laplace alone, and its reverse by a tangent drift: how
that is moved along, and which second-order terms the curvature adds to it, is for the space to say.
"""

from abc import abstractmethod

from torch import Tensor

from unnoise.noise import NoiseSource
from unnoise.shapes import AnyState, Float
from unnoise.spaces.base import Space


class Manifold(Space):
    """A closed space without an edge, of finite volume."""

    shape: tuple[int, ...]

    @abstractmethod
    def check(self, x: AnyState, name: str = "x") -> Tensor: ...

    @abstractmethod
    def project(self, x: Tensor) -> Tensor: ...  # type: ignore[override]

    @property
    @abstractmethod
    def log_volume(self) -> float:
        """Of the reference measure."""

    @abstractmethod
    def tangent(self, v: Tensor, x: Tensor) -> Tensor:
        """The projection of v onto the directions in which x can move."""

    def gradient(self, slope: Tensor, x: Tensor) -> Tensor:
        """Of a function whose derivatives by the entries of x are `slope`."""
        return self.tangent(slope, x)

    @abstractmethod
    def carry(self, x: Tensor, v: Tensor) -> Tensor:
        """The point that is reached from x along the geodesic with the tangent vector v."""

    # of a small step's density (`geodesic_step`)

    def towards(self, x: Tensor, y: Tensor) -> Tensor:
        """The shortest tangent vector v with carry(x, v) = y."""
        raise self.unanswered("towards(x, y)", "the shortest way from x to y, for densities of steps")

    def log_stretch(self, length: Tensor) -> Tensor:
        """log of the volume that a unit of the tangent plane at x is carried to, at this distance."""
        raise self.unanswered("log_stretch(length)", "how `carry` stretches volumes, for densities of steps")

    def square_length(self, v: Tensor) -> Float[Tensor, "batch"]:
        return v.square().flatten(1).sum(1)

    def tangent_normal(self, x: Tensor, noise: NoiseSource) -> Tensor:
        """A standard normal vector of the tangent plane."""
        return self.tangent(noise.normal(tuple(x.shape[1:]), x.dtype), x)

    def nodes(self, count: int) -> tuple[Tensor, Float[Tensor, "nodes"]]:
        """Points [nodes, *shape] and weights, float64, of a rule with `count` nodes to each direction."""
        raise self.unanswered("nodes(count)", "the nodes and weights of a rule for integrals over it")
