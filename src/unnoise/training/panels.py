"""Panels: the same few samples, drawn again and again while a model trains, so that one sees them become better.

They are spread evenly over the share of the training that lies behind, whatever ends it, and drawn where the loop pauses
anyway.  Every panel has the same seed: its samples differ from those of the last by the weights alone.  The noise is a
function of that seed, and no random state is touched, so losses are the same with and without panels.  All of them together
take at most `SHARE` of the time, but for the first and the last: one that would take more waits.
"""

from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from unnoise.conditions import moved
from unnoise.data.base import Format
from unnoise.denoiser import Denoiser
from unnoise.samplers import own_plan, sample
from unnoise.training.config import TrainConfig
from unnoise.training.telling import Telling
from unnoise.tree import map_leaves

SHARE = 0.05
NAME = "0" * 9  # digits of a step in a file's name


def panel_files(folder: Path) -> list[tuple[int, Path]]:
    """The panels in a folder of samples by their steps, in order."""
    files = folder.iterdir() if folder.is_dir() else []
    named = [(path.name.split(".")[0], path) for path in files]
    return sorted((int(name), path) for name, path in named if name.isdecimal() and len(name) == len(NAME))


class Panels:
    def __init__(
        self, folder: Path, format: Format, config: TrainConfig, step: int, done: float, telling: Telling | None = None
    ):
        """For a training that is at `step`: panels of a later step, of a run that was cut short, are dropped."""
        self.folder, self.format, self.config, self.telling = folder, format, config, telling
        self.seen = self._passed(done)  # how many of the moments for a panel need none any more
        self.spent = self.last = 0.0  # seconds of all panels, and of the last
        for later, path in panel_files(folder):
            if later > step:
                path.unlink()

    def _passed(self, done: float) -> int:
        return int(done * self.config.panels + 1e-9)

    def due(self, done: float, seconds: float, ended: bool) -> bool:
        """Whether a panel is drawn now, when a share `done` of the training is behind, after so many seconds of it."""
        passed = self._passed(done)
        if not (ended and self.config.panels or passed > self.seen and self.spent + self.last <= SHARE * seconds):
            return False
        self.seen = passed
        return True

    def draw(self, denoiser: Denoiser, step: int, clock: Callable[[], float] = perf_counter) -> Path:
        """Draw with the weights as they are, and write the file."""
        began, training = clock(), denoiser.training
        plan = own_plan(denoiser, None if denoiser.plan is not None else self.config.sample_steps)
        count, seed, told = self.config.samples, self.config.seed, dict[str, Any]()
        if self.telling is not None:
            told = moved(self.telling.condition(self.telling.states(torch.arange(count), seed, {})), denoiser.device)
        x, _ = sample(denoiser.eval(), count, plan.steps, sampler=plan.sampler, seed=seed, condition=told)
        denoiser.train(training)
        self.folder.mkdir(exist_ok=True)
        path = self.folder / f"{step:0{len(NAME)}d}{self.format.shown_suffix()}"
        x = map_leaves(Tensor.cpu, x)
        self.format.write(x if self.telling is None else self.telling.joined(x, seed, {}), path)  # type: ignore[arg-type]
        self.last = clock() - began
        self.spent += self.last
        return path


def excerpt(path: Path, lines: int) -> str | None:
    """The first lines of a file of samples, as text; None where it is a picture or unreadable."""
    if path.suffix == ".npy":
        import numpy as np

        values = np.load(path, allow_pickle=False)
        return np.array2string(values[:lines], precision=4, threshold=64, suppress_small=True)
    try:
        with open(path, encoding="utf-8") as file:
            return "".join(line for _, line in zip(range(lines), file, strict=False))
    except UnicodeDecodeError:
        return None
