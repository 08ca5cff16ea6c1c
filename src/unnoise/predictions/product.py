"""A prediction on a product: one prediction per leaf."""

from typing import Any

from unnoise.checks import leaf_time
from unnoise.generators import ProductReversal
from unnoise.predictions.base import Kind, Prediction, refuse
from unnoise.processes import Process
from unnoise.shapes import Tree


class ProductPrediction(ProductReversal, Prediction):
    """A dict of predictions."""

    leaves: dict[str, Prediction]  # type: ignore[assignment]

    def __init__(self, leaves: dict[str, Prediction], process: Process, x_t: Tree, t: Tree):
        super().__init__(leaves)  # type: ignore[arg-type]
        self.process, self.x_t, self.t = process, x_t, t

    @property
    def tied_to_grid(self) -> bool:  # type: ignore[override]
        return any(leaf.tied_to_grid for leaf in self.leaves.values())

    def clean(self) -> dict[str, Tree]:
        return {name: leaf.clean() for name, leaf in self.leaves.items()}

    def with_value(self, value: dict[str, Tree]) -> Any:
        """The leaves that are named get other values."""
        unknown = [name for name in value if name not in self.leaves]
        if unknown:
            raise ValueError(f"there is no leaf {unknown} to give a value; the leaves are {list(self.leaves)}")
        leaves = {name: leaf.with_value(value[name]) if name in value else leaf for name, leaf in self.leaves.items()}
        return type(self)(leaves, self.process, self.x_t, self.t)

    def at(self, t: Tree) -> Any:
        leaves = {name: leaf.at(leaf_time(t, name)) for name, leaf in self.leaves.items()}
        return type(self)(leaves, self.process, self.x_t, t)

    def __getitem__(self, name: str) -> Prediction:
        return self.leaves[name]

    def to(self, kind: type[Kind] | dict[str, type], **options) -> "ProductPrediction":  # type: ignore[override]
        """Convert leaves by name: `prediction.to({"age": Noise})`; leaves not named stay as they are."""
        if not isinstance(kind, dict):
            if issubclass(kind, Prediction) and kind.joint:
                raise refuse(self, kind, "")
            raise TypeError("on a product, name the leaf: prediction.to({'leaf': Kind})")
        unknown = [name for name in kind if name not in self.leaves]
        if unknown:
            raise ValueError(f"there is no leaf {unknown} to convert; the leaves are {list(self.leaves)}")
        leaves = {name: leaf.to(kind[name], **options) if name in kind else leaf for name, leaf in self.leaves.items()}
        return ProductPrediction(leaves, self.process, self.x_t, self.t)
