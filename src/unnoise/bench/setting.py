"""Where and how large to measure: the device, and one of three sizes.

tiny     everything in seconds: for tests
small    two cores of a processor, or a small accelerator
large    an accelerator with 40 GiB or more
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch

from unnoise.bench.figures import Aim

SIZES = ("tiny", "small", "large")
MUCH = 40 * 2**30  # bytes of an accelerator that holds the large size
Kind = TypeVar("Kind")


@dataclass(frozen=True)
class BenchSetting:
    device: torch.device
    size: str

    @classmethod
    def of(cls, device: str = "auto", size: str | None = None) -> "BenchSetting":
        if device not in ("auto", "cpu", "cuda"):
            raise ValueError(f"device = {device!r}: choose auto, cpu or cuda")
        if device == "cuda" and not torch.cuda.is_available():
            raise ValueError("device = 'cuda', and there is none here: leave it out")
        if size is not None and size not in SIZES:
            raise ValueError(f"size = {size!r}: choose from {', '.join(SIZES)}")
        where = torch.device("cuda" if device != "cpu" and torch.cuda.is_available() else "cpu")
        much = where.type == "cuda" and torch.cuda.get_device_properties(where).total_memory >= MUCH
        return cls(where, size or ("large" if much else "small"))

    @property
    def on_cuda(self) -> bool:
        return self.device.type == "cuda"

    def aim(self, **values: float) -> Aim | None:
        """What is aimed at on a large accelerator, and nothing elsewhere."""
        return Aim(**values) if self.size == "large" else None

    def pick(self, sizes: Mapping[str, Kind]) -> Kind:
        """What a row has for this size."""
        return sizes[self.size]
