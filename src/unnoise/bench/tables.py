"""A mixed table, drawn by `unnoise sample` from a run with the recipe's network: all of the command, and the drawing in it.

The floor is the network on as many rows as the drawing gives it, in batches of a few thousand and as CUDA graphs.  The
command stands for itself in a process of its own; how long the drawing is in it tells a second drawing here, when all that
is made once is made.  What is left is start-up: imports, loading, compiling, recording; and writing the file.
"""

import tempfile
from pathlib import Path

import torch

from unnoise.bench.adult_like import LABELS, NUMBERS, ROWS, AdultLike
from unnoise.bench.figures import Figure
from unnoise.bench.fresh import import_seconds, seconds_of
from unnoise.bench.registry import register
from unnoise.bench.setting import BenchSetting
from unnoise.bench.timing import Timing, clock, recorded, taken
from unnoise.denoiser import Denoiser
from unnoise.shapes import AnyState
from unnoise.training.drawing import draw
from unnoise.training.recipes import recipe
from unnoise.training.run import Run, ema_name
from unnoise.tree import map_leaves

SIZES = {"tiny": (8, LABELS[:2], NUMBERS[:1]), "small": (128, LABELS, NUMBERS), "large": (ROWS, LABELS, NUMBERS)}
BATCH = 4096  # rows that the floor's network sees at once
LONG = 30.0  # seconds of a command, beyond which an eighth of the rows is drawn again


def untrained(form: AdultLike, rows: int, setting: BenchSetting, folder: Path) -> Run:
    """A run as it is before its first update, saved."""
    run = Run.create(folder, recipe(form, rows, on=setting.device), {form.kind: AdultLike})
    weights = run.denoiser_of_config().state_dict()
    names = ["weights", *map(ema_name, run.config.train.ema)]
    run.save(0, {"step": 0}, {name: dict(weights) for name in names})
    return run


@register("table", "rows of a mixed table by `unnoise sample`")
@torch.no_grad()
def table(setting: BenchSetting) -> list[Figure]:
    count, labels, numbers = setting.pick(SIZES)
    form, where = AdultLike(labels=labels, numbers=numbers), setting.device.type
    with tempfile.TemporaryDirectory() as folder:
        run = untrained(form, ROWS, setting, Path(folder) / "run")
        words = ["-m", "unnoise.cli", "sample", str(run.folder), "--load", "unnoise.bench.adult_format", "--device"]
        device = "auto" if setting.on_cuda else "cpu"
        whole = seconds_of(*words, device, "-n", str(count), "--out", f"{folder}/rows.csv")
        denoiser = run.denoiser().to(setting.device)
    some = count if whole < LONG else count // 8
    draw(denoiser, form, some, seed=0, device=where)
    began = clock(setting.device)
    _, info = draw(denoiser, form, some, seed=0, device=where)
    drawing = (clock(setting.device) - began) * count / some
    imports = import_seconds()
    return [
        Figure(
            what=f"unnoise sample -n {count:,}, {len(labels)} labels and {len(numbers)} numbers",
            ours=Timing(whole),
            floor=floor(denoiser, form, info.rows * count / some, setting),
            floor_is=f"{info.rows // max(some, 1)} calls of the network",
            parts={"drawing": drawing, "import": imports, "load, compile, write": max(0.0, whole - drawing - imports)},
            aim=setting.aim(seconds=10.0),
        )
    ]


def floor(denoiser: Denoiser, form: AdultLike, rows: int | float, setting: BenchSetting) -> Timing:
    """So many rows through the network."""
    batch = int(min(rows, BATCH))
    x: AnyState = map_leaves(lambda leaf: leaf.to(setting.device), form.drawn(batch))
    t = torch.full((batch,), 0.5, device=setting.device)
    once = taken({"calls": recorded(lambda: denoiser.network(x, t), setting.device)}, setting.device, seconds=2.0)["calls"]
    return once.over(batch / rows)
