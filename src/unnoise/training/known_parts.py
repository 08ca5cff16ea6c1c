"""What is known of rows before they are drawn: values that are given, the same for all, and labels that each row has drawn
before all else (`guidance.first_labels`)."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch
from torch import Tensor

from unnoise.noise import NoiseSource
from unnoise.shapes import Bool, Int


class DrawnLabels(ABC):
    """Some coordinates of a masked leaf with values of their own in each row."""

    leaf: str
    fixed: Bool[Tensor, "coordinates"]

    @abstractmethod
    def drawn(self, noise: NoiseSource) -> Int[Tensor, "rows coordinates"]:
        """Values of the coordinates that are fixed; of the others anything."""


@dataclass(frozen=True)
class KnownParts:
    given: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)  # leaf: (values, which coordinates they fix)
    labels: DrawnLabels | None = None

    def __bool__(self) -> bool:
        return bool(self.given) or self.labels is not None

    @property
    def leaves(self) -> list[str]:
        return list(self.fixed)

    @property
    def fixed(self) -> dict[str, Tensor]:
        """Which coordinates of each leaf are known."""
        found = {leaf: which for leaf, (_, which) in self.given.items()}
        if self.labels is not None:
            own = self.labels.fixed
            found[self.labels.leaf] = own | found.get(self.labels.leaf, torch.zeros_like(own))
        return found

    def values(self, noise: NoiseSource) -> dict[str, Tensor]:
        """Of the rows that the noise is for; of one where they are the same for all."""
        found = {leaf: values for leaf, (values, _) in self.given.items()}
        if self.labels is not None:
            drawn = self.labels.drawn(noise)
            own = self.labels.fixed.to(drawn.device)
            found[self.labels.leaf] = torch.where(own, drawn, found.get(self.labels.leaf, drawn[:1]).to(drawn))
        return found
