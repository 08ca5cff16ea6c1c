"""A training run on disk.

    config.json              how it trains, and on what
    weights.safetensors      the latest weights          (for other programs: links to the newest state)
    ema-<rate>.safetensors   their averaged copies
    state/<step>-<n>/        the last good states and the best one, each a folder with a manifest
    metrics.jsonl samples/ report.html

Loading reads the newest state that is whole, and builds only what the registries of networks, formats and prediction types
hold.  A state says itself whether it was the best when it was saved, so that a kill never comes between the two; the best is
the newest that says so.
"""

import json
import os
import shutil
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import NoneType
from typing import Any

import torch
from torch import Tensor, nn

from unnoise import data, networks
from unnoise.data.base import Format
from unnoise.data.conditional import TOLD, Conditional
from unnoise.denoiser import Denoiser
from unnoise.distillation import bounded, plan_of
from unnoise.extensions import unknown
from unnoise.networks.linear_law import LinearLaw
from unnoise.networks.precision import in_precision
from unnoise.networks.start import LinearStart
from unnoise.paths import check_run
from unnoise.processes import Process
from unnoise.shapes import Int
from unnoise.training import safe_files, telling
from unnoise.training.config import RunConfig, kinds_of
from unnoise.training.data_order import Source
from unnoise.training.metrics import read_metrics
from unnoise.training.safe_files import Damaged, RunError
from unnoise.training.task import Task
from unnoise.training.tensor_files import line_of, read_tensors, write_tensors

Parts = dict[str, dict[str, Tensor]]  # tensors by file name (without suffix) and by name within it
NUMBERS: dict[str, tuple[type, ...]] = {  # what training goes on from, beside its tensors
    **dict.fromkeys(("step", "epoch", "position", "waited", "rows"), (int,)),
    "seconds": (int, float),
    "best": (int, float, NoneType),
}


def ema_name(rate: float) -> str:
    return f"ema-{rate!r}"


class SavedState:
    """One saved state: its folder and the numbers beside its tensors."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.step, self.attempt = (int(part) for part in folder.name.split("-"))

    @property
    def order(self) -> tuple[int, int]:
        return self.step, self.attempt

    @property
    def improved(self) -> bool:
        """Whether its bound was the lowest so far when it was saved."""
        try:
            return safe_files.read_json(self.folder / "state.json").get("improved") is True
        except Damaged:
            return False

    def load(self, names: list[str]) -> tuple[dict[str, Any], Parts]:
        """(numbers, tensors) after every file was checked; `names` are the tensor files to read."""
        files = safe_files.verified(self.folder)["files"]
        missing = [file for file in ("state.json", *(f"{name}.safetensors" for name in names)) if file not in files]
        if missing:
            raise Damaged(f"{self.folder} lacks {', '.join(missing)}")
        numbers = safe_files.read_json(self.folder / "state.json")
        return numbers, {name: read_tensors(self.folder / f"{name}.safetensors") for name in names}


class Run:
    """`Run.create(folder, config)` for a new run, `Run.open(folder)` for one that is there."""

    def __init__(
        self,
        folder: Path,
        config: RunConfig,
        formats: Mapping[str, type[Format]] | None = None,
        task: Task | None = None,
    ):
        self.folder, self.config, self.formats = folder, config, formats
        self._format: Format | None = None
        self._task = task
        self._process = None if task is None else task.process  # of no denoiser yet
        self._denoiser: Denoiser | None = None  # made, and not handed out yet
        self.states, self.metrics = folder / "state", folder / "metrics.jsonl"
        self.samples, self.report = folder / "samples", folder / "report.html"

    @classmethod
    def create(
        cls,
        folder: Path | str,
        config: RunConfig,
        formats: Mapping[str, type[Format]] | None = None,
        task: Task | None = None,
    ) -> "Run":
        """`task` is that of the configuration, where it is made already."""
        folder = Path(folder)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise RunError(f"{folder} is there already and is not empty: choose a new folder, or resume the run in it")
        config = RunConfig.from_json(config.to_json())  # what cannot be read back is refused now
        run = cls(folder, config, formats, task)
        run.format()
        run._denoiser = run.denoiser_of_config()  # that it can be made, before the folder is
        run.states.mkdir(parents=True, exist_ok=True)
        run.samples.mkdir(exist_ok=True)
        safe_files.write_json(folder / "config.json", config.to_json())
        return run

    @classmethod
    def open(cls, folder: Path | str, formats: Mapping[str, type[Format]] | None = None) -> "Run":
        folder = Path(folder)
        check_run(folder)
        said = safe_files.read_json(folder / "config.json")
        try:
            config = RunConfig.from_json(said)
        except (ValueError, RecursionError) as error:
            raise RunError(f"{folder / 'config.json'}: {error}") from error
        return cls(folder, config, formats)

    def locked(self) -> AbstractContextManager[None]:
        """For the length of a `with`, this is the only training that writes to the folder, or an error."""
        return safe_files.locked(self.folder)

    def change(self, **changes: Any) -> None:
        """Go on with other training settings, such as more steps or a lower learning rate."""
        with self.locked():
            self.config.train = self.config.train.changed(**changes)
            safe_files.write_json(self.folder / "config.json", self.config.to_json())

    # what is trained

    def format(self) -> Format:
        if self._format is None:
            kind, formats = self.config.format["kind"], data.FORMATS if self.formats is None else self.formats
            if kind not in formats:
                raise RunError(f"{self.folder}: {unknown('data format', kind, formats)}")
            self._format = formats[kind].from_json(self.config.format["data"])
        return self._format

    def task(self) -> Task:
        """The format's process under the run's schedule, and the objective's options: made once."""
        if self._task is None:
            self._task = Task.of(self.format(), self.config.schedule, self.config.model)
            self._process = self._task.process
            if self.config.process and self._task.words != self.config.process:
                warnings.warn(
                    f"{self.folder}: the format now makes another process than when the run was trained", stacklevel=3
                )
        return self._task

    def process(self) -> Process:
        """A process for a denoiser: the task's own for the first, another for whoever asks next, since what a schedule
        learns is the denoiser's."""
        task = self.task()
        process, self._process = self._process, None
        return process or task.again().process

    def objective_options(self) -> dict[str, Any]:
        """The options of an `Objective` that suit the data and the schedule."""
        return dict(self.task().options)

    def denoiser_of_config(self) -> Denoiser:
        """A denoiser as it is before training, its network drawn by the run's seed."""
        made, self._denoiser = self._denoiser, None
        if made is not None:
            return made
        process, name, options = self.process(), self.config.network["name"], self.config.network["options"]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.config.train.seed)
            try:
                network, code = networks.base.build(name, options), self.task().code()
            except (RuntimeError, MemoryError) as error:  # such as a width beyond all memory
                raise RunError(
                    f"{self.folder}: the network {name} of {options} cannot be built: {line_of(error)}"
                ) from error
        twice, kinds = bool(options.get("self_condition", False)), kinds_of(self.config.predicts)
        start = None if self.config.law is None else LinearStart(process, LinearLaw.from_json(self.config.law))
        return Denoiser(network, process, kinds, self_condition=twice, start=start, code=code)

    def start_from(self, law: dict[str, Any], write: bool = True) -> None:
        """Keep the law that the network is to start from: of a run that has no state yet."""
        self.config.law = law
        if self._denoiser is not None:
            self._denoiser.start = LinearStart(self._denoiser.process, LinearLaw.from_json(law))
        if write:
            safe_files.write_json(self.folder / "config.json", self.config.to_json())

    def denoiser(self, ema: bool | float = True, which: str = "last", into: Denoiser | None = None) -> Denoiser:
        """The trained denoiser, ready to sample.

        `ema` names the averaged copy by its rate (True: the first, False: the plain weights); `which` is "last" or "best",
        the state with the lowest bound on the held-out rows.  `into` is a denoiser of this run that takes the weights,
        where there is one that nobody trains any more.
        """
        rates = self.config.train.ema
        rate = (rates[0] if rates else None) if ema is True else None if ema is False else ema
        if rate is not None and rate not in rates:
            raise RunError(f"{self.folder} has no averaged copy of rate {rate}: choose from {list(rates)}")
        name = "weights" if rate is None else ema_name(rate)
        _, _, parts = self.load([name], which)
        denoiser = self.denoiser_of_config() if into is None else into
        load_weights(denoiser, parts[name], self.folder)
        if self.config.distilled is not None:
            denoiser.plan = plan_of(self.config.distilled["method"], denoiser.process, self.config.distilled["steps"])
        return denoiser.eval().requires_grad_(False)

    @property
    def no_bound(self) -> str | None:
        """Why what the run draws has no bound; None where there is one."""
        said = self.config.distilled
        return None if said is None else bounded(said["method"], self.task().process)

    def for_drawing(self, denoiser: Denoiser, precision: str | None = None) -> Denoiser:
        """The denoiser as samples are drawn from it: its network in the precision that it was trained in, or another
        (`networks.precision`)."""
        return in_precision(denoiser, precision or self.config.train.precision)

    # what it is told

    def keep_conditions(self, source: Source, rows: Int[Tensor, "rows"]) -> None:
        """Keep what the network is told of the rows that it is trained on: samples are drawn under it."""
        if isinstance(self.format(), Conditional):
            conditions: Any = source.take(rows)
            telling.keep(self.folder, conditions[TOLD], self.config.train.seed)

    def telling(self) -> telling.Telling | None:
        """What samples are drawn under; None where the network is told nothing."""
        format = self.format()
        if not isinstance(format, Conditional):
            return None
        return telling.Telling(format, telling.kept(self.folder), self.config.train.drop)

    # states

    def found(self) -> list[SavedState]:
        """The saved states, oldest first."""
        folders = self.states.iterdir() if self.states.is_dir() else []
        plain = [path for path in folders if path.is_dir() and all(part.isdecimal() for part in path.name.split("-", 1))]
        return sorted((SavedState(path) for path in plain if "-" in path.name), key=lambda state: state.order)

    def best(self) -> SavedState | None:
        """The state with the best bound so far, if one was measured."""
        return next((state for state in reversed(self.found()) if state.improved), None)

    def load(self, names: list[str] | None = None, which: str = "last") -> tuple[SavedState, dict[str, Any], Parts]:
        """The newest state that is whole (or the best), its numbers and tensors: `names`, or all that training needs."""
        if which not in ("last", "best"):
            raise ValueError(f"which = {which!r}: choose last or best")
        held = [] if self.config.distilled is None else ["teacher"]
        wanted = ["weights", "optimizer", "rng", *held, *map(ema_name, self.config.train.ema)] if names is None else names
        states = self.found()
        best = self.best() if which == "best" else None
        for state in ([best] if best else []) + states[::-1]:
            try:
                numbers, parts = state.load(wanted)
                wrong = [name for name, types in NUMBERS.items() if type(numbers.get(name, "")) not in types]
                if names is None and wrong:
                    raise Damaged(f"{state.folder / 'state.json'} does not say {', '.join(wrong)}")
                return state, numbers, parts
            except Damaged as error:
                warnings.warn(f"{error}; falling back to an earlier state", stacklevel=2)
        what = "its saved states are all damaged" if states else "it has no saved state yet"
        raise RunError(f"{self.folder}: {what}; train it (again) first")

    def save(self, step: int, numbers: dict[str, Any], parts: Parts, best: bool = False) -> SavedState:
        """Add a state, then drop the oldest.  A kill at any moment loses nothing but this save."""
        safe_files.sweep(self.states)
        attempts = [state.attempt for state in self.found() if state.step == step]
        target = self.states / f"{step:09d}-{max(attempts, default=-1) + 1}"

        def fill(folder: Path) -> None:
            for name, tensors in parts.items():
                write_tensors(folder / f"{name}.safetensors", tensors)
            (folder / "state.json").write_text(json.dumps({**numbers, "improved": best}, indent=1) + "\n")

        safe_files.save_folder(target, fill, {"step": step})
        self._publish(target)
        self._prune(target)
        return SavedState(target)

    def _publish(self, state: Path) -> None:
        for path in state.glob("*.safetensors"):
            if path.stem == "weights" or path.stem.startswith("ema-"):
                passing = self.folder / (safe_files.PASSING + path.name)
                passing.unlink(missing_ok=True)
                try:
                    os.link(path, passing)
                except OSError:  # a file system without links
                    shutil.copyfile(path, passing)
                os.rename(passing, self.folder / path.name)

    def _prune(self, newest: Path) -> None:
        states = self.found()
        best = self.best()
        kept = {state.folder for state in states[-self.config.train.keep :]} | {newest} | ({best.folder} if best else set())
        for state in states:
            if state.folder not in kept:
                safe_files.remove_folder(state.folder)

    def drop_if_bare(self) -> None:
        """Take away the folder of a run that got nowhere: nothing was saved, and nothing measured."""
        if self.found() or read_metrics(self.metrics):
            return
        shutil.rmtree(self.folder, ignore_errors=True)

    def drop_after(self, state: SavedState | None) -> None:
        """Set aside the states newer than the one that training goes on from: they are damaged."""
        for other in self.found():
            if state is None or other.order > state.order:
                safe_files.set_aside(other.folder)


def fitting(tensors: Mapping[str, Tensor], name: str, shape: torch.Size, file: str) -> Tensor:
    """A saved tensor of the shape that it is to have; one of another would be spread out, or read beyond its end."""
    found = tensors.get(name)
    if found is None or found.shape != shape or not found.dtype.is_floating_point:
        what = "missing" if found is None else f"{found.dtype} of shape {tuple(found.shape)}"
        raise RunError(f"{file}: {name} is {what}, not floats of shape {tuple(shape)} for the network of config.json")
    return found


def load_weights(module: nn.Module, weights: dict[str, Tensor], where: Path) -> None:
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        raise RunError(f"{where}: the weights do not fit the network of config.json: {line_of(error)}") from error
