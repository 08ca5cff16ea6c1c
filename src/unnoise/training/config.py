"""What a training run is told, as plain data.

`TrainConfig` says how to train; `RunConfig` adds what is trained: the data's format, the network and what its numbers mean.
Both are JSON on disk: a key that this version does not know, or a value that makes no sense, is refused by name before any
work is done.
"""

import json
from dataclasses import Field, asdict, dataclass, fields
from math import cos, pi
from typing import Any, get_origin

from unnoise.data.base import Format
from unnoise.distillation import options_of
from unnoise.networks.base import described
from unnoise.objectives import weightings
from unnoise.predictions import Kinds
from unnoise.predictions.registry import kind_named, name_of_kind
from unnoise.training.task import Task

DECAYS = ("cosine", "constant", "linear")
PRECISIONS = ("no", "bf16")
DEVICES = ("auto", "cpu")
OPTIMISERS = ("adamw", "muon")
STARTS = ("nothing", "law")
FIXED = (
    "seed",
    "validation",
    "ema",
    "optimiser",
    "start",
    "drop",
)  # what a saved state depends on: not to be changed in the middle of a run
WEIGHTINGS: dict[str, type[weightings.Weighting]] = {
    "bound": weightings.Bound,
    "simple": weightings.Simple,
    "x0": weightings.X0,
    "v": weightings.V,
    "min_snr": weightings.MinSNR,
    "edm": weightings.EDMWeighting,
    "sigmoid": weightings.SigmoidWeighting,
    "balanced": weightings.Balanced,
    "cross_entropy": weightings.CrossEntropy,
}


def only_known(cls: type, data: Any, what: str) -> dict[str, Any]:
    """The entries of a JSON object, if all of them are fields of a class."""
    if not isinstance(data, dict):
        raise ValueError(f"{what} is a {type(data).__name__}; it must be an object with named entries")
    known = [field.name for field in fields(cls)]
    unknown = sorted(set(data) - set(known))
    if unknown:
        raise ValueError(f"{what} has unknown keys {unknown}: choose from {', '.join(known)}")
    return data


def _typed(field: Field, value: Any) -> Any:
    """A JSON value as a field has it: lists are tuples, and a whole number may stand for a float."""
    number = isinstance(value, float | int) and not isinstance(value, bool)
    if get_origin(field.type) is tuple and isinstance(value, list | tuple):
        if all(isinstance(entry, float | int) and not isinstance(entry, bool) for entry in value):
            return tuple(float(entry) for entry in value)
    elif field.type in (float, float | None) and number:
        return float(value)
    elif get_origin(field.type) is not tuple and isinstance(value, bool) == (field.type is bool):
        fits = isinstance(value, field.type)  # type: ignore[arg-type]
        if fits:
            return value
    raise ValueError(f"{field.name} = {value!r} does not fit the training configuration: it must be {field.type}")


@dataclass(kw_only=True)
class TrainConfig:
    """How to train.  Training ends at the first of `steps`, `epochs` and `minutes` that is reached; one must be given.

    `batch_size` counts the examples of one update over all processes and accumulated parts together.
    """

    steps: int | None = None
    epochs: int | None = None
    minutes: float | None = None
    batch_size: int = 128
    accumulate: int = 1  # parts that each update's batch is cut into, one after another
    optimiser: str = "adamw"  # or muon: orthogonal updates for the matrices inside the network
    lr: float = 1e-3
    warmup: int = 100  # steps in which the learning rate rises from 0
    decay: str = "cosine"
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.99)
    clip: float | None = 1.0  # the largest norm of the gradient
    precision: str = "no"
    compile: bool = False
    capture: bool = False  # on CUDA: record an update and launch it as a whole; for one process, accumulate = 1
    ema: tuple[float, ...] = (0.999,)  # rates of the averaged copies; the first is the one that is validated and sampled
    seed: int = 0
    validation: float = 0.1  # the share of rows held out
    validation_rows: int = 4096  # at most this many of them are used for the bound during training
    validation_draws: int = 4  # how often each is noised
    validate_every: int = 500
    patience: int | None = None  # validations without a better bound before training stops
    save_every: int = 500
    keep: int = 2  # how many of the last good states stay on disk
    weighting: str = "bound"
    start: str = "nothing"  # or law: the exact denoiser of a law fitted to the rows, on which the network builds
    observed: float = 0.5  # of products: the share of rows that are trained given some of their leaves, at time 0
    drop: float = 0.1  # of conditions: the share of rows that are trained without any
    workers: int = 0  # processes that fetch rows ahead
    panels: int = 8  # how often samples are shown on the way; 0: never
    samples: int = 9  # of a panel
    sample_steps: int = 16
    log_every: int = 20
    device: str = "auto"
    tensorboard: bool = True  # where it is installed

    def __post_init__(self) -> None:
        if self.steps is None and self.epochs is None and self.minutes is None:
            raise ValueError("steps, epochs and minutes are all None, so training would never end: give one of them")
        for name in ("batch_size", "accumulate", "validation_rows", "validation_draws", "validate_every", "save_every"):
            self._at_least(name, 1)
        for name in ("keep", "samples", "sample_steps", "log_every", "steps", "epochs", "patience"):
            self._at_least(name, 1)
        for name in ("workers", "warmup", "panels"):
            self._at_least(name, 0)
        self._check_ranges()
        self._check_names()

    def _check_ranges(self) -> None:
        for name in ("lr", "minutes", "clip"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"{name} = {value}: it must be above 0")
        if not 0 <= self.validation < 1:
            raise ValueError(f"validation = {self.validation}: the held-out share lies in [0, 1)")
        if not 0 <= self.observed <= 1:
            raise ValueError(f"observed = {self.observed}: a share of the rows lies in [0, 1]")
        if not 0 <= self.drop < 1:
            raise ValueError(f"drop = {self.drop}: the share of rows that are told nothing lies in [0, 1)")
        if self.weight_decay < 0:
            raise ValueError(f"weight_decay = {self.weight_decay} must not be negative")
        for rate in (*self.ema, *self.betas):
            if not 0 <= rate < 1:
                raise ValueError(f"ema = {self.ema}, betas = {self.betas}: every rate lies in [0, 1)")
        if len(set(self.ema)) < len(self.ema) or len(self.betas) != 2:
            raise ValueError(f"ema = {self.ema}, betas = {self.betas}: rates of copies differ, and there are two betas")

    def _check_names(self) -> None:
        for name, choice in (
            ("decay", DECAYS),
            ("precision", PRECISIONS),
            ("weighting", WEIGHTINGS),
            ("device", DEVICES),
            ("optimiser", OPTIMISERS),
            ("start", STARTS),
        ):
            if getattr(self, name) not in choice:
                raise ValueError(f"{name} = {getattr(self, name)!r}: choose from {', '.join(choice)}")

    def _at_least(self, name: str, low: int) -> None:
        value = getattr(self, name)
        if value is not None and value < low:
            raise ValueError(f"{name} = {value}: it must be at least {low}")

    def lr_at(self, step: int, done: float) -> float:
        """The learning rate of an update, when a share `done` of the training lies behind."""
        rise = min(1.0, (step + 1) / self.warmup) if self.warmup else 1.0
        done = min(max(done, 0.0), 1.0)
        fall = {"constant": 1.0, "linear": 1 - done, "cosine": (1 + cos(pi * done)) / 2}[self.decay]
        return self.lr * rise * fall

    def changed(self, **changes: Any) -> "TrainConfig":
        """The same with some entries changed, if a saved state allows it."""
        new = TrainConfig.from_json({**self.to_json(), **changes})
        for name in FIXED:
            if getattr(new, name) != getattr(self, name):
                raise ValueError(
                    f"{name} = {getattr(new, name)!r}, but the run began with {getattr(self, name)!r}: start a new run"
                )
        return new

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> "TrainConfig":
        data = only_known(cls, data, "the training configuration")
        return cls(**{field.name: _typed(field, data[field.name]) for field in fields(cls) if field.name in data})


@dataclass(kw_only=True)
class RunConfig:
    """All that makes a run again: how it trains, and on what."""

    train: TrainConfig
    format: dict[str, Any]  # {"kind": ..., "data": ...}
    network: dict[str, Any]  # {"name": ..., "options": ...}
    predicts: Any = None  # the name of a prediction type, None for a `Denoiser`'s default, or a dict of these by leaf
    schedule: str | None = None  # of the noise of numbers, by name; None: the format's own
    process: str = ""  # the process that the format made, in words: to notice where another is made later
    law: dict[str, Any] | None = None  # that the network starts from, fitted when training begins
    model: dict[str, Any] | None = None  # what is noised in place of the data, {"name": ..., "options": ...}; None: the data
    distilled: dict[str, Any] | None = (
        None  # from which run and how, {"from": ..., "method": ..., "steps": ..., "options": ...}
    )

    @classmethod
    def of(
        cls, train: TrainConfig, format: Format | Task, network: Any, predicts: Kinds = None, schedule: str | None = None
    ) -> "RunConfig":
        """From the things themselves; `network` is a registered module, or {"name", "options"}, and `predicts` what it
        predicts if that is not the default."""
        named = network if isinstance(network, dict) else described(network)
        task = format if isinstance(format, Task) else Task.of(format, schedule)
        data = {"kind": task.format.kind, "data": _plain(task.format)}
        kinds = kind_names(predicts or task.kinds)
        return cls(
            train=train,
            format=data,
            network=named,
            predicts=kinds,
            schedule=task.schedule,
            process=task.words,
            model=task.model,
        )

    def to_json(self) -> dict[str, Any]:
        return {**{field.name: getattr(self, field.name) for field in fields(self)}, "train": self.train.to_json()}

    @classmethod
    def from_json(cls, data: Any) -> "RunConfig":
        data = only_known(cls, data, "the run's configuration")
        missing = [name for name in ("train", "format", "network") if name not in data]
        if missing:
            raise ValueError(f"the run's configuration lacks {missing}")
        for name, keys in (("format", {"kind", "data"}), ("network", {"name", "options"})):
            if not isinstance(data[name], dict) or set(data[name]) != keys:
                raise ValueError(f"the run's {name} must be an object with the keys {sorted(keys)}")
        kinds_of(data.get("predicts"))
        model = data.get("model")
        if model is not None and (not isinstance(model, dict) or set(model) != {"name", "options"}):
            raise ValueError("the run's model must be an object with the keys ['name', 'options'], or null")
        check_distilled(data.get("distilled"))
        return cls(**{**data, "train": TrainConfig.from_json(data["train"])})


def check_distilled(said: Any) -> None:
    """What a run says of its teacher."""
    if said is None:
        return
    keys = {"from", "method", "steps", "options"}
    if not isinstance(said, dict) or set(said) != keys or not isinstance(said["options"], dict):
        raise ValueError(f"the run's distilled must be an object with the keys {sorted(keys)}, or null")
    if type(said["steps"]) is not int or said["steps"] < 1:
        raise ValueError(f"distilled: steps = {said['steps']!r} must be a whole number from 1 on")
    known = options_of(said["method"])
    if strange := [name for name in said["options"] if name not in known]:
        raise ValueError(f"the method {said['method']} has no option {strange[0]!r}: choose from {', '.join(known)}")


def _plain(format: Format) -> dict[str, Any]:
    """A format as it is saved with a run."""
    data = format.to_json()
    try:
        json.dumps(data)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{type(format).__name__}.to_json() is not plain data ({error}): return dicts, lists, words, numbers and None"
        ) from error
    return data


def kind_names(kinds: Kinds) -> Any:
    """Prediction types by name."""
    if kinds is None or isinstance(kinds, str):
        return kinds
    if isinstance(kinds, dict):
        return {name: kind_names(kind) for name, kind in kinds.items()}
    return name_of_kind(kinds)


def kinds_of(names: Any) -> Kinds:
    """Prediction types from their names, and from no others."""
    if names is None:
        return None
    if isinstance(names, dict):
        return {leaf: kinds_of(name) for leaf, name in names.items()}
    return kind_named(names)
