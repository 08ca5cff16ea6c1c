"""The library by names that hold in an older tree and in a newer one.

`name("objectives.Count")` is what that was called in either.  To follow a renaming, add it to `RENAMED`; to follow a changed
signature, change the function here that makes the call, so that the cases stay as they are.
"""

from importlib import import_module
from inspect import Parameter, signature
from typing import Any

from torch import nn

# old name, or the first part of one -> newer ones.  These are tried first: an old name may mean something else by now
RENAMED: dict[str, tuple[str, ...]] = {
    "rates": ("rate_matrices",),
    "noises": ("noise_laws",),
    "objectives.Count": ("objectives.MaskedCount",),
    "objectives.MixedCount": ("objectives.MixedTimes",),
    "decoders.Counts": ("decoders.CountDecoder",),
    "decoders.Leaves": ("decoders.LeafDecoders",),
    "weightings.Leaves": ("weightings.LeafWeightings",),
    "samplers.grids.Uniform": ("samplers.grids.Even",),
}
# parts whose names may have got a last word, as decoders.Gaussian is decoders.GaussianDecoder
LAST_WORDS = {
    "decoders": "Decoder",
    "weightings": "Weighting",
    "variances": "Variance",
    "predictions": "Prediction",
    "objectives": "Times",
    "schedules": "Schedule",
    "samplers": "Sampler",
    "samplers.grids": "Grid",
}


def spellings(old: str) -> list[str]:
    """The names to try, newest first."""
    found = [old]
    for begin, newer in RENAMED.items():
        if old == begin or old.startswith(begin + "."):
            found = [new + old[len(begin) :] for new in newer] + found
    part, _, last = old.rpartition(".")
    return ([f"{part}.{last}{LAST_WORDS[part]}"] if part in LAST_WORDS else []) + found


def _found(spelling: str) -> Any:
    """An attribute of the package, by attributes and by modules that must be imported first."""
    value: Any = import_module("unnoise")
    parts = spelling.split(".")
    for i, part in enumerate(parts):
        if part not in dir(value):
            import_module(".".join(["unnoise", *parts[: i + 1]]))  # or there is none
        value = getattr(value, part)
    return value


def name(*old: str) -> Any:
    """What has one of these names, or what they have become."""
    tried = [spelling for each in old for spelling in spellings(each)]
    for spelling in tried:
        try:
            return _found(spelling)
        except (ImportError, AttributeError):
            continue
    raise LookupError(f"the library has none of {', '.join(tried)}: tell unchanged_cases.adapter.RENAMED the new name")


def made(old: str, *arguments: Any, **options: Any) -> Any:
    """`name(old)`, called."""
    return name(old)(*arguments, **options)


def call(function: Any, *arguments: Any, condition: dict[str, Any] | None = None, **options: Any) -> Any:
    """A call with a condition: as one argument of that name, or each part as an argument of its own."""
    if condition is None:
        return function(*arguments, **options)
    takes = signature(function.forward if isinstance(function, nn.Module) else function).parameters.get("condition")
    together = takes is not None and takes.kind is not Parameter.VAR_KEYWORD
    return function(*arguments, **options, **({"condition": condition} if together else condition))


def sample(denoiser: Any, n: int | None, **options: Any) -> dict[str, Any]:
    """Samples and what the run counted."""
    x, info = call(name("sample"), denoiser, n, **options)
    counted = {key: getattr(info, key) for key in ("calls", "rows", "jumps", "clipped", "end_errors")}
    return {"x": x, **{key: value for key, value in counted.items() if value is not None}} | (
        {"trajectory": info.trajectory} if info.trajectory is not None else {}
    )


def objective(denoiser: Any, kind: str = "Objective", weighting: Any = None, **options: Any) -> Any:
    """What is minimised: the bound, or a weighting of its integrand."""
    return made(f"objectives.{kind}", denoiser, **({} if weighting is None else {"weighting": weighting}), **options)


def terms(bound: Any) -> dict[str, Any]:
    """The terms of a bound by name, as attributes or in a dict of them."""
    named = getattr(bound, "terms", {})
    keys = ("prior", "diffusion", "reconstruction")
    found = {key: named[key] if key in named else getattr(bound, key) for key in keys}
    return {**found, "loss": bound.loss}


def likelihood(denoiser: Any, x0: Any, method: Any, **options: Any) -> dict[str, Any]:
    log_prob, info = call(name("likelihood"), denoiser, x0, method, **options)
    return {"log_prob": log_prob, "error": info.error, "calls": info.calls, "rows": info.rows}


def local(data: Any) -> Any:
    """Drift, diffusion and jumps of a generator, as a tree."""
    if isinstance(data, dict):
        return {key: local(part) for key, part in data.items()}
    return {key: getattr(data, key) for key in ("drift", "diffusion", "log_rates") if getattr(data, key) is not None}


def command(*arguments: str) -> None:
    """`unnoise ...`; anything but success is an error."""
    try:
        name("cli.main")(list(arguments))
    except SystemExit as ended:
        if ended.code:
            raise RuntimeError(f"unnoise {arguments[0]} ended with status {ended.code}") from ended
