"""The machine and the versions that a table was measured with."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

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
