"""Where x lives, and what a generator needs to know of it: numbers, categories, counts, angles, products, and one's own."""

from unnoise.spaces.base import ENUMERABLE, INTEGERS, ArraySpace, Space
from unnoise.spaces.counts import Counts
from unnoise.spaces.euclidean import Euclidean
from unnoise.spaces.finite import Finite
from unnoise.spaces.jumping import JumpingSpace
from unnoise.spaces.local import JumpKernel, Local, ThinnedJumps
from unnoise.spaces.manifold import Manifold
from unnoise.spaces.orthant import Orthant
from unnoise.spaces.phase import PhaseSpace
from unnoise.spaces.product import ProductSpace, tree_leaves
from unnoise.spaces.rotations import Rotations
from unnoise.spaces.simplex import Simplex
from unnoise.spaces.sphere import Sphere
from unnoise.spaces.torus import Circle, Torus

__all__ = [
    "ENUMERABLE",
    "INTEGERS",
    "ArraySpace",
    "Circle",
    "Counts",
    "Euclidean",
    "Finite",
    "JumpKernel",
    "JumpingSpace",
    "Local",
    "Manifold",
    "PhaseSpace",
    "Orthant",
    "ProductSpace",
    "Rotations",
    "Simplex",
    "Space",
    "Sphere",
    "ThinnedJumps",
    "Torus",
    "tree_leaves",
]
