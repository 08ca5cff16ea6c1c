"""Training: updates of the loop beside those of a bare one, and how long a training of a table takes to start.

Both train the same network, compiled alike, with the same objective, batch, precision and optimiser.  The bare loop takes
rows in a random order, calls the objective, steps the optimiser, and does nothing else: no averaged copies, no clipping, no
flag, no metrics.  The time of an update is the median over windows of several.
"""

import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from unnoise.bench.adult_like import ROWS, AdultLike
from unnoise.bench.figures import Figure
from unnoise.bench.fresh import import_seconds
from unnoise.bench.registry import register
from unnoise.bench.setting import BenchSetting
from unnoise.bench.timing import Timing, clock
from unnoise.data.arrays import Array
from unnoise.data.base import Format
from unnoise.data.sequences import Sequences
from unnoise.denoiser import Denoiser
from unnoise.noise import NoiseSource
from unnoise.shapes import AnyState, Tree
from unnoise.training.config import TrainConfig
from unnoise.training.learner import objective_of
from unnoise.training.metrics import read_metrics
from unnoise.training.optimiser import Optimiser
from unnoise.training.recipes import recipe
from unnoise.training.run import Run
from unnoise.training.trainer import Trainer
from unnoise.tree import batch_size, map_leaves

FASTER = 0.9  # the share of a bare loop's speed that is aimed at
BEFORE = 2  # windows that are not counted: kernels are compiled, an update is recorded


@dataclass(frozen=True)
class Windows:
    """So many windows of so many updates are timed, of networks of a preset on so many rows."""

    windows: int
    updates: int
    preset: str
    rows: int

    @property
    def steps(self) -> int:
        return (BEFORE + self.windows) * self.updates


SIZES = {"tiny": Windows(2, 1, "tiny", 64), "small": Windows(3, 3, "tiny", 2048), "large": Windows(8, 10, "small", ROWS)}


def _table(rows: int) -> tuple[Format, AnyState]:
    form = AdultLike()
    return form, form.drawn(rows)


def _text(rows: int) -> tuple[Format, Tree]:
    letters = list(" abcdefghijklmnopqrstuvwxyz")
    form = Sequences(form="text", symbols="characters", alphabet=letters, length=256, padded=False)
    return form, torch.randint(len(letters), (min(rows, 8192), 256))


def _image(rows: int) -> tuple[Format, Tree]:
    values = np.random.default_rng(0).integers(256, size=(min(rows, 8192), 28, 28), dtype=np.uint8)
    return Array.of_array(values)


DATA: dict[str, Callable[[int], tuple[Format, AnyState]]] = {"table": _table, "text": _text, "image": _image}


@register("training", "updates of a training beside those of a bare loop")
def training(setting: BenchSetting) -> list[Figure]:
    torch.manual_seed(0)
    return [figure for name, data in DATA.items() for figure in trained(setting, name, *data(setting.pick(SIZES).rows))]


def trained(setting: BenchSetting, name: str, form: Format, x0: AnyState) -> list[Figure]:
    """The update of one kind of data; of a table how long the start took, too."""
    plan = setting.pick(SIZES)
    quiet: dict[str, Any] = {
        "validation": 0.0,
        "panels": 0,
        "tensorboard": False,
        "save_every": 10**6,
        "log_every": plan.updates,
    }
    where = "auto" if setting.on_cuda else "cpu"
    config = recipe(form, batch_size(x0), plan.preset, setting.device, steps=plan.steps, device=where, **quiet)
    with tempfile.TemporaryDirectory() as folder:
        run = Run.create(Path(folder) / "run", config, {form.kind: type(form)})
        began = perf_counter()
        trainer = Trainer(run, x0)
        trainer.fit()
        whole = clock(setting.device) - began
        paces = [line["examples_per_second"] for line in read_metrics(run.metrics) if "examples_per_second" in line]
    batch = config.train.batch_size
    ours = Timing.of([batch / pace for pace in paces[BEFORE:]])
    bare = Timing.of(bare_updates(trainer.learner.denoiser, x0, config.train, form.objective_options(), plan))
    how = "a bare compiled loop" if config.train.compile else "a bare loop"
    what = f"{name}, preset {plan.preset}, batch {batch}, an update"
    aim = setting.aim(ratio=round(1 / FASTER, 2))
    figures = [Figure(what=what, ours=ours, floor=bare, floor_is=how, aim=aim)]
    if name == "table":
        start, imports = max(0.0, whole - plan.steps * ours.seconds), import_seconds()
        parts = {"import": imports, "build, compile, record": start}
        figures.append(
            Figure(what="table, until updates run", ours=Timing(start + imports), parts=parts, aim=setting.aim(seconds=30.0))
        )
    return figures


def bare_updates(denoiser: Denoiser, x0: Tree, config: TrainConfig, options: dict[str, Any], plan: Windows) -> list[float]:
    """Seconds of an update of the bare loop, window by window; the network is compiled already if it was for training."""
    device = denoiser.device
    rows: AnyState = map_leaves(lambda leaf: leaf.to(device), x0)
    objective = objective_of(denoiser.train(), config, options)
    optimiser, never = Optimiser(denoiser, config), torch.zeros((), device=device)
    half = torch.autocast(device.type, torch.bfloat16) if config.precision == "bf16" else nullcontext()
    order, batch = torch.randperm(batch_size(x0), device=device), config.batch_size
    taken, began = list[float](), 0.0
    for step in range(plan.steps):
        if step % plan.updates == 0:
            began = clock(device)
        start = step * batch % max(1, len(order) - batch)
        index = order[start : start + batch]
        with half:
            part = map_leaves(lambda leaf, index=index: leaf[index], rows)
            loss = objective(part, NoiseSource(0, index).at(step)).loss.mean()
        loss.backward()
        optimiser.update(config.lr, never)
        if (step + 1) % plan.updates == 0:
            taken.append((clock(device) - began) / plan.updates)
    return taken[BEFORE:]
