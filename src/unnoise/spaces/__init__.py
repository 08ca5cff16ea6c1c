"""Where x lives, and what a generator needs to know of it: numbers, categories, counts, products of them, and one's own."""

from unnoise.spaces.base import ENUMERABLE, INTEGERS, ArraySpace, Space
from unnoise.spaces.counts import Counts
from unnoise.spaces.euclidean import Euclidean
from unnoise.spaces.finite import Finite
from unnoise.spaces.jumping import JumpingSpace
from unnoise.spaces.local import JumpKernel, Local
from unnoise.spaces.product import ProductSpace, tree_leaves

__all__ = [
    "ENUMERABLE",
    "INTEGERS",
    "ArraySpace",
    "Counts",
    "Euclidean",
    "Finite",
    "JumpKernel",
    "JumpingSpace",
    "Local",
    "ProductSpace",
    "Space",
    "tree_leaves",
]
