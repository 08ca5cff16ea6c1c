"""Tensor shapes in signatures, e.g. `Float[Tensor, "batch *shape"]`, and trees of tensors.

Shapes are documentation in production and are checked in the tests, where jaxtyping is installed and its import hook
wraps every function of the package.  Without jaxtyping an annotation is plainly a `Tensor`.

A tree of T is a T, or a dict of trees with one entry for each leaf of a product; a plain `Tree` is one of tensors.  The type
checker follows it to any depth.  What is asked of a process or a space takes `AnyState`: which kind of tree that is, only
the class of the process says.
"""

from typing import TYPE_CHECKING, Any, TypeAlias

from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Tensor)
    Tree: TypeAlias = T | dict[str, "Tree[T]"]
    Clock: TypeAlias = Tree[Tensor] | Tree[float]  # a time for all rows, or one for each; on a product also one per leaf
else:
    from typing import TypeVar

    try:
        from jaxtyping import Bool, Float, Int
    except ImportError:

        class _Plain:
            def __class_getitem__(cls, item):
                return item[0]

        Bool = Float = Int = _Plain

    Tree = TypeVar("T") | dict[str, Any]
    Clock = Any

AnyState: TypeAlias = Any  # a tensor on a leaf, a dict of trees on a product: the class that is asked says which

__all__ = ["AnyState", "Bool", "Clock", "Float", "Int", "Tensor", "Tree"]
