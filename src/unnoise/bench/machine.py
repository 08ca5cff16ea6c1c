"""The machine and the versions that something was measured with, when, and by which command."""

import os
import platform
from dataclasses import asdict, dataclass
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from unnoise.bench.setting import BenchSetting

PACKAGES = ("unnoise", "torch", "triton", "diffusers", "flow_matching")


def machine(device: torch.device) -> str:
    """The device in words."""
    if device.type == "cuda":
        memory = torch.cuda.get_device_properties(device).total_memory / 2**30
        return f"{torch.cuda.get_device_name(device)}, {memory:.0f} GiB"
    return f"{_processor()}, {torch.get_num_threads()} threads of {os.cpu_count()}"


def _processor() -> str:
    """The processor's name, where the system tells it."""
    told = Path("/proc/cpuinfo")
    lines = told.read_text().splitlines() if told.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """The versions of what is installed of the library, torch and the peers."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    found["torch"] = torch.__version__
    return found


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where, when and how figures were measured."""

    date: str
    machine: str
    size: str
    versions: dict[str, str]
    command: str
    seconds: float  # that all of it took

    @classmethod
    def of(cls, setting: BenchSetting, command: str, seconds: float) -> "Origin":
        return cls(
            date=date.today().isoformat(),
            machine=machine(setting.device),
            size=setting.size,
            versions=versions(),
            command=command,
            seconds=seconds,
        )

    def words(self) -> str:
        known = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        return f"{self.date}, {self.machine}; size {self.size}; {known}; {self.seconds:.0f} s"

    def json(self) -> dict[str, Any]:
        return asdict(self)
