"""Defaults that need no option: what to train for each kind of data."""

from typing import Any

import torch

from unnoise.data.base import Format
from unnoise.kernels.noise import available
from unnoise.networks.linear_law import can_fit
from unnoise.networks.presets import planned
from unnoise.training.config import RunConfig, TrainConfig
from unnoise.training.task import Task

MOST_STARTING = 20_000  # rows that start from a law: more of them say more than its few parameters hold


def preset_for(device: torch.device | str) -> str:
    return "tiny" if torch.device(device).type == "cpu" else "small"


def train_defaults(format: Format, rows: int, preset: str, device: torch.device | str) -> dict[str, Any]:
    """Training settings by what the format says of its data, number of rows and size of network."""
    device = torch.device(device)
    on_cpu = device.type == "cpu"
    own = {"batch_size": 64 if on_cpu else 256, **format.training(preset, on_cpu)}
    batch = max(1, min(own["batch_size"], rows // 4))
    batch -= batch % 8 if batch > 8 else 0  # the same on one process and on several
    per_epoch = max(1, rows // batch)
    quick = available(device)  # updates that are compiled, and recorded: 4 to 17 times as many a second
    # the bound on held-out rows is to take a tenth of the time at most
    every = max(1, min(500, 2 * per_epoch)) if on_cpu else max(100, min(1000 if format.dear else 500, 10 * per_epoch))
    draws = max(2 if on_cpu or format.dear else 4, min(8, 1024 // max(1, rows // 10)))  # of few rows, more
    return {
        "weighting": "bound",
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
        **own,
        "batch_size": batch,
    }


def start_for(task: Task, wished: str, rows: int) -> str:
    """A law where the format asks for one, it is quickly fitted, and rows are so few that it helps."""
    if task.made is not None:
        return "nothing"
    return wished if wished != "law" or (rows <= MOST_STARTING and can_fit(task.process)) else "nothing"


def recipe(
    format: Format | Task,
    rows: int,
    preset: str | None = None,
    on: torch.device | str = "cpu",
    schedule: str | None = None,
    self_condition: bool = False,
    network: str | None = None,
    network_options: dict[str, Any] | None = None,
    model: dict[str, Any] | None = None,
    **options: Any,
) -> RunConfig:
    """The configuration of a run on this data; options that are None keep the default.

    `format` may be the `Task` that the run is given too, so that its process is made once.  `network` is the name of another
    registered network than the one that suits the process, `model` what is noised in place of the data (`models`).
    """
    preset = preset or preset_for(on)
    task = format if isinstance(format, Task) else Task.of(format, schedule, model)
    more: dict[str, Any] = {**({"self_condition": True} if self_condition else {}), **(network_options or {})}
    if inputs := task.format.inputs():
        more["conditions"] = inputs
    hints = {"rows": rows, **task.format.network_hints()}
    made = task.made
    plan = planned(task.process, preset, network, hints, None if made is None else made.network, **more)
    own = {} if made is None else made.training
    chosen = {**train_defaults(task.format, rows, preset, on), **own, **{k: v for k, v in options.items() if v is not None}}
    if options.get("steps") is not None or options.get("epochs") is not None:
        chosen["minutes"] = options.get("minutes")
    if "start" not in options:
        chosen["start"] = start_for(task, chosen.get("start", "nothing"), rows)
    return RunConfig.of(TrainConfig.from_json(chosen), task, plan, task.kinds)
