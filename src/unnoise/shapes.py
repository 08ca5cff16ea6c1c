"""Tensor shapes in signatures, e.g. `Float[Tensor, "batch *shape"]`.

They are documentation in production and are checked in the tests, where jaxtyping is installed and its import hook
wraps every function of the package.  Without jaxtyping an annotation is plainly a `Tensor`.
"""

from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
else:
    try:
        from jaxtyping import Bool, Float, Int
    except ImportError:

        class _Plain:
            def __class_getitem__(cls, item):
                return item[0]

        Bool = Float = Int = _Plain

Tree = Any  # a tensor, or a dict of trees (one entry per leaf of a product)

__all__ = ["Bool", "Float", "Int", "Tensor", "Tree"]
