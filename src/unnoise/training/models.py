"""What is noised, by name: the data themselves, or something that stands for them.

A *model* makes of the process that a format suggests another one, with the code that leads there and back (`codes`), the
network that suits it and the options of its objective.  `unnoise train FILE --model NAME` takes one that is registered:

    @register_model("bits")
    def _(process, hints, **options):
        '''The digits of categories in base 2, as numbers.'''
        return Modelled(process=..., code=..., network=(name, needed))

`hints` are what the format says of the data (see `networks.presets`); what follows are options of the model's own, given by
`--set-model name=value`, whose defaults the signature says.  The first line of the docstring is its help.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import Parameter, signature
from types import NoneType, UnionType
from typing import Any, get_args

from unnoise.codes import Code
from unnoise.extensions import unknown
from unnoise.predictions import Kinds
from unnoise.processes import Process


@dataclass(frozen=True, kw_only=True)
class Modelled:
    """What is trained in place of the data's own process."""

    process: Process
    code: Callable[[], Code] | None = None  # made anew for every denoiser: its parameters are the denoiser's
    network: tuple[str, dict[str, Any]] | None = None  # registered, with what it must know; None: that of the process
    predicts: Kinds = None  # None: the code's, or the default of the process
    options: dict[str, Any] = field(default_factory=dict)  # of an `Objective`
    training: dict[str, Any] = field(default_factory=dict)  # settings of a `TrainConfig`, in place of the format's
    objective: Callable[..., Any] | None = None  # (denoiser, weighting=, **options), in place of `Objective`


Maker = Callable[..., Modelled]
MODELS: dict[str, Maker] = {}


def register_model(name: str) -> Callable[[Maker], Maker]:
    """Decorate a function (process, hints, **options) -> Modelled with the name of the model."""

    def add(maker: Maker) -> Maker:
        if name in MODELS and MODELS[name].__module__ != maker.__module__:
            raise ValueError(f"there is a model {name!r} already, of {MODELS[name].__module__}: choose another name")
        MODELS[name] = maker
        return maker

    return add


def model_options(name: str) -> dict[str, Any]:
    """The options of a model with their defaults."""
    if name not in MODELS:
        raise ValueError(unknown("model", name, MODELS))
    parameters = list(signature(MODELS[name]).parameters.values())[2:]
    return {p.name: None if p.default is Parameter.empty else p.default for p in parameters}


def asked(name: str, options: dict[str, Any], preset: str) -> dict[str, Any]:
    """A model as a run's configuration names it; one that has sizes of its own takes that of the network."""
    sized = {"preset": preset} if "preset" in model_options(name) else {}
    return {"name": name, "options": {**sized, **options}}


def modelled(model: dict[str, Any], process: Process, hints: dict[str, Any]) -> Modelled:
    """What {"name", "options"} makes of a process; what does not fit is refused by name."""
    name, options = model["name"], model.get("options") or {}
    known = model_options(name)
    if strange := [option for option in options if option not in known]:
        raise ValueError(
            f"the model {name!r} has no option {strange[0]!r}"
            + (f": choose from {', '.join(known)}" if known else ": it has none")
        )
    parameters = signature(MODELS[name]).parameters
    given = {option: _fitting(name, option, value, parameters[option].annotation) for option, value in options.items()}
    return MODELS[name](process, hints, **given)


def _fitting(name: str, option: str, value: Any, annotation: Any) -> Any:
    """A value of the type that an option says; a whole number may stand for a float."""
    if not isinstance(annotation, type | UnionType) or annotation is Parameter.empty:
        return value
    kinds = get_args(annotation) or (annotation,)
    if float in kinds and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, bool) and bool not in kinds or not isinstance(value, annotation):
        words = " or ".join("nothing" if kind is NoneType else kind.__name__ for kind in kinds)
        raise ValueError(f"the option {option} of the model {name!r} is {value!r}: it must be {words}")
    return value
