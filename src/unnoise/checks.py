"""What every public entrance asks of its input.  Each error names the value and the remedy.

Values (not shapes or dtypes) are read on the CPU only: looking at a number that lives on an accelerator would make the
host wait for it, once per training step.  Data is checked before it is moved.  Nor are they read where there are none to
read: while `torch.compile` traces, or inside of `torch.func.vmap`.  `with checks.values(False):` leaves them all out.

Within a step (`remembering`) a tensor is looked at once, however many entrances it passes.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral
from threading import local
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor
from torch._C._functorch import get_unwrapped, is_batchedtensor, is_functorch_wrapped_tensor

_values = True


@contextmanager
def values(read: bool) -> Iterator[None]:
    """Whether checks look at values, for the length of a `with`; shapes and dtypes are always looked at."""
    global _values
    before, _values = _values, read
    try:
        yield
    finally:
        _values = before


Thing = TypeVar("Thing")
Function = TypeVar("Function", bound=Callable[..., Any])


def instance_of(value: Thing, base: type[Any], name: str, example: str) -> Thing:
    """The value, if it is of this class; a name or a class in its place is refused, with what to write."""
    if isinstance(value, base):
        return value
    given = f"{name} = {value!r}" if isinstance(value, str) else f"{name} is a {type(value).__name__}"
    if isinstance(value, type):
        given = f"{name} is the class {value.__name__}"
        example = f"{value.__name__}(...)" if issubclass(value, base) else example
    raise TypeError(f"{given}, where {_article(base.__name__)} belongs: pass {name}={example}")


def _article(noun: str) -> str:
    return f"an {noun}" if noun[0] in "AEIO" else f"a {noun}"


def whole(value: Any, name: str, least: Literal[0, 1] = 1) -> int:
    """A whole number, not below the least."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} = {value!r} is no whole number: pass one, such as {name}=16")
    if value < least:
        raise ValueError(f"{name} = {value}: at least one is needed" if least else f"{name} = {value} must not be negative")
    return int(value)


class Unanswered(TypeError, NotImplementedError):
    """A question that a space or a process does not answer.  The message names it and what to write."""


MOST_REMEMBERED = 64


class _Step(local):
    values: dict[Any, Any] | None = None


_step = _Step()


class remembering:
    """For the length of a `with`, what is found of a tensor is kept with it: that it is right, or a schedule's values at
    its times.  Nothing may be written over meanwhile."""

    def __enter__(self) -> None:
        self.outer = _step.values
        if self.outer is None:
            _step.values = {}

    def __exit__(self, *error: object) -> None:
        _step.values = self.outer


def memory() -> dict[Any, Any] | None:
    """What is kept in this step; None outside of one, and where a graph is traced.  An entry holds the objects by whose
    identity it is found, so that no other can take their place."""
    if torch.compiler.is_compiling():
        return None
    values = _step.values
    if values is not None and len(values) > MOST_REMEMBERED:
        values.clear()
    return values


def constant_in_graphs(function: Function) -> Function:
    """A function that a graph holds the answer of, where one is traced: the mark of `torch.compiler.assume_constant_result`,
    without loading the compiler, which takes longer than all else that this library imports."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def may_read(x: Tensor) -> bool:
    """Whether the values of x may be read: they are there, without a host synchronisation."""
    if torch.compiler.is_compiling() or not _values or x.device.type != "cpu":
        return False
    return x.numel() > 0 and not (is_functorch_wrapped_tensor(x) and _batched(x))


def _batched(x: Tensor) -> bool:
    """Whether x is one of many that `vmap` works on at once, under any derivatives taken inside."""
    while is_functorch_wrapped_tensor(x):
        if is_batchedtensor(x):
            return True
        x = get_unwrapped(x)
    return False


def within(x: Tensor, low: float, high: float) -> bool:
    """Whether all values lie in [low, high]; NaN lies nowhere."""
    least, most = torch.aminmax(x.detach() if x.requires_grad else x)
    return low <= least.item() and most.item() <= high


def unread(x: Tensor, reader: object) -> bool:
    """Whether the values of x may be read, and this reader has not read them yet in this step."""
    if not may_read(x):
        return False
    kept = memory()
    if kept is None:
        return True
    key = (id(reader), id(x))
    if key in kept:
        return False
    kept[key] = (reader, x)
    return True


def as_times(t: Any, batch: int, device: torch.device, name: str = "t") -> Tensor:
    """One float64 time per row, from a number, a scalar tensor or a tensor of `batch` entries."""
    fit = isinstance(t, Tensor) and t.dtype is torch.float64 and t.shape == (batch,) and t.device == device
    if fit and (not may_read(t) or getattr(t, "entry", None) is not None):
        return t  # out of sight, or a clock of a run, whose grid was looked at (`unnoise.clocks`)
    kept = memory()
    if kept is not None and (batch, id(t), device) in kept:
        return t  # known to be right
    if isinstance(t, float | int) and 0 <= t <= 1:
        return torch.full((1,), t, dtype=torch.float64, device=device).expand(batch)  # nothing is copied to the device
    t = _tensor_of_times(t, name).to(device=device, dtype=torch.float64)
    if t.ndim > 1 or (t.ndim == 1 and t.shape[0] not in (1, batch)):
        raise ValueError(f"{name} has shape {tuple(t.shape)}; pass a number or one time per row, shape ({batch},)")
    if may_read(t) and not within(t, 0.0, 1.0):
        bad = ~((t >= 0) & (t <= 1))
        raise ValueError(f"{name} = {t[bad].flatten()[0].item():g} lies outside [0, 1] (0 is data, 1 is noise)")
    t = t if t.ndim and len(t) == batch else t.expand(batch)
    if kept is not None:
        kept[batch, id(t), device] = t
    return t


def _tensor_of_times(t: Any, name: str) -> Tensor:
    if isinstance(t, Mapping):
        raise TypeError(
            f"{name} is a tree with leaves {sorted(t)}, but this process has a single leaf: pass one time per row"
        )
    if not isinstance(t, Tensor):
        try:
            t = torch.tensor(t, dtype=torch.float64)
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(f"{name} is {t!r}; pass a number in [0, 1], or a float tensor with one per row") from error
    if not (t.dtype.is_floating_point or t.ndim == 0):
        raise TypeError(f"{name} has dtype {t.dtype}, but times are floats in [0, 1]: pass {name}.float() / steps")
    return t


def ordered(s: Tensor, t: Tensor) -> None:
    if may_read(s) and bool((s >= t).any()):
        i = int((s >= t).nonzero()[0, 0])
        raise ValueError(f"s = {s[i].item():g} is not before t = {t[i].item():g}; a step needs s < t")


def leaf_time(t: Any, name: str) -> Any:
    """The time of one leaf of a product: its own entry of a tree of times, or the common clock."""
    return t[name] if isinstance(t, Mapping) else t


def fits(tree: Any, names: tuple[str, ...], what: str) -> None:
    if not isinstance(tree, Mapping):
        raise TypeError(
            f"{what} is a {type(tree).__name__}, but the product has leaves {list(names)}: "
            f"pass a dict with one entry per leaf"
        )
    missing, extra = [n for n in names if n not in tree], [n for n in tree if n not in names]
    if missing or extra:
        parts = ([f"lacks {missing}"] if missing else []) + ([f"has unknown {extra}"] if extra else [])
        raise ValueError(f"{what} does not fit the product: it {' and '.join(parts)}; its leaves are {list(names)}")


def fits_times(t: Any, names: tuple[str, ...], name: str = "t") -> None:
    if isinstance(t, Mapping):
        fits(t, names, f"the time tree {name}")
