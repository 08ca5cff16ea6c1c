"""Defaults that need no option: what to train for each kind of data."""

from typing import Any

import torch

from unnoise.data.arrays import Array
from unnoise.data.base import Format
from unnoise.kernels.noise import available
from unnoise.networks.base import described
from unnoise.networks.presets import default_network
from unnoise.predictions import default_kind
from unnoise.training.config import RunConfig, TrainConfig
from unnoise.training.schedules import scheduled


def preset_for(device: torch.device | str) -> str:
    return "tiny" if torch.device(device).type == "cpu" else "small"


def train_defaults(format: Format, rows: int, preset: str, device: torch.device | str) -> dict[str, Any]:
    """Training settings by kind of data, number of rows and size of network."""
    device = torch.device(device)
    on_cpu = device.type == "cpu"
    batch = {"table": 256 if on_cpu else 2048, "sequences": 32 if on_cpu else 128, "array": 64 if on_cpu else 256}[
        format.kind
    ]
    batch = max(1, min(batch, rows // 4))
    batch -= batch % 8 if batch > 8 else 0  # the same on one process and on several
    per_epoch = max(1, rows // batch)
    images = isinstance(format, Array) and len(format.shape) > 1
    quick = available(device)  # updates that are compiled, and recorded: 4 to 17 times as many a second
    # the bound on held-out rows is to take a tenth of the time at most
    every = max(1, min(500, 2 * per_epoch)) if on_cpu else max(100, min(1000 if images else 500, 10 * per_epoch))
    draws = max(2 if on_cpu or images else 4, min(8, 1024 // max(1, rows // 10)))  # of few rows, more
    more: dict[str, Any] = {}
    if format.kind == "sequences" or images:  # Muon: 1.68 bits per letter after 42 s of one accelerator, AdamW 1.81
        rate = {"tiny": 1e-2, "small": 3e-3, "base": 2e-3}[preset]
        more = {"optimiser": "muon", "lr": rate, "weight_decay": 0.1, "decay": "linear"}
    return {
        "batch_size": batch,
        "weighting": _weighting(format),
        "lr": {"tiny": 3e-3, "small": 1e-3, "base": 5e-4}[preset],
        "minutes": 1.0 if on_cpu else 5.0,
        "precision": "no" if on_cpu else "bf16",
        "compile": quick,
        "capture": quick,
        "ema": (0.99,) if on_cpu else (0.999,),
        "validate_every": max(every, 4 * draws),
        "save_every": 2000,
        "patience": 20,
        "validation_rows": 1024 if on_cpu else 4096,
        "validation_draws": draws,
        **more,
    }


def _weighting(format: Format) -> str:
    """The bound, but for images: most of theirs is about the last bits of pixels, and little about what they look like."""
    if not isinstance(format, Array) or len(format.shape) < 2:
        return "bound"
    if not format.categories:
        return "balanced"
    return "cross_entropy" if format.noise == "ordinal" else "bound"


def recipe(
    format: Format,
    rows: int,
    preset: str | None = None,
    on: torch.device | str = "cpu",
    schedule: str | None = None,
    self_condition: bool = False,
    **options: Any,
) -> RunConfig:
    """The configuration of a run on this data; options that are None keep the default."""
    preset = preset or preset_for(on)
    process, _ = scheduled(format.process(), schedule, format.objective_options())
    windows = not getattr(format, "padded", True)
    bin = format.width if isinstance(format, Array) and format.levels else 0.0
    more: dict[str, Any] = {"self_condition": True} if self_condition else {}
    network = default_network(process, preset, windows=windows, bin=bin, **more)
    chosen = {**train_defaults(format, rows, preset, on), **{k: v for k, v in options.items() if v is not None}}
    if options.get("steps") is not None or options.get("epochs") is not None:
        chosen["minutes"] = options.get("minutes")
    return RunConfig.of(TrainConfig.from_json(chosen), format, described(network), default_kind(process), schedule)
