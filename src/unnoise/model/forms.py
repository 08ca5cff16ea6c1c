"""What data in memory is, so that samples come back as the same.

A `Form` takes data apart into one of three plain things that formats read, and puts such a thing together again:

    pyarrow.Table       frames of pandas and polars, arrow tables, dicts of columns, Hugging Face datasets
    numpy.ndarray       arrays and tensors
    strings             a list of them, or one long text

It is plain data itself, to be saved with a model.  A type of one's own is one more class: `@register_form`.
"""

from abc import ABC, abstractmethod
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch

from unnoise.data.base import BadData
from unnoise.extensions import refuse_other, unknown

ACCEPTED = (
    "a path, a pandas or polars DataFrame, a pyarrow Table, a dict of columns, a Hugging Face Dataset, a NumPy array, a "
    "torch tensor, a list of strings, or one long text"
)
NAME = 1024  # a string is a text, and no path, from so many characters on, or where it has several lines


class Form(ABC):
    """One type of data in memory."""

    name: ClassVar[str]  # in saved models

    @classmethod
    @abstractmethod
    def accepts(cls, data: Any) -> bool:
        """Whether the data is of this type."""

    @classmethod
    def of(cls, data: Any) -> "Form":
        """The form of this data, with what it takes to make such data again."""
        return cls()

    @abstractmethod
    def plain(self, data: Any) -> Any:
        """The data as a table, an array or strings."""

    @abstractmethod
    def back(self, plain: Any) -> Any:
        """A table, an array or strings as data of this type."""

    def filled(self, plain: Any, data: Any) -> Any:
        """The same for data whose gaps were filled: what names its rows stays."""
        return self.back(plain)

    def to_json(self) -> dict[str, Any]:
        return {}

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> "Form":
        return cls(**said)


FORMS: dict[str, type[Form]] = {}
Class = TypeVar("Class", bound=type[Form])


def register_form(form: Class) -> Class:
    """Decorate a form: it is asked before those that were registered earlier."""
    refuse_other("form", form.name, form, FORMS.get(form.name), "name")
    FORMS[form.name] = form
    return form


def form_of(data: Any) -> Form:
    """The form of some data, or an error that says what is accepted."""
    found = next((form for form in reversed(FORMS.values()) if form.accepts(data)), None)
    if found is not None:
        return found.of(data)
    kind = type(data)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__.split('.')[0]}.{kind.__name__}"
    if isinstance(data, list | tuple):
        raise BadData(_odd_list(data, name))
    hint = {"Series": ": pass .to_frame() for a table, .tolist() for texts", "LazyFrame": ": collect it first"}
    raise BadData(f"the data is of type {name}{hint.get(kind.__name__, f': pass {ACCEPTED}')}")


def _odd_list(data: list | tuple, name: str) -> str:
    if not data:
        return f"the {name} is empty: pass at least four strings"
    i = next(i for i, entry in enumerate(data) if not isinstance(entry, str))
    return f"entry {i} of the {name} is a {type(data[i]).__name__}, not a string: numbers go into an array, np.array(...)"


def form_named(name: str) -> type[Form]:
    if name not in FORMS:
        raise BadData(unknown("form of data", name, FORMS))
    return FORMS[name]


@register_form
class FileForm(Form):
    """A file, by its path.  What is drawn is no file but what suits: a frame, an array, a list of strings."""

    name = "file"

    @classmethod
    def accepts(cls, data: Any) -> bool:
        return isinstance(data, PathLike) or (isinstance(data, str) and len(data) < NAME and "\n" not in data)

    def plain(self, data: Any) -> Path:
        path = Path(data)
        if isinstance(data, str) and not path.exists():
            raise BadData(
                f"{data[:60]!r}: there is no such file; a single string is taken as a text where it has several lines or at "
                f"least {NAME} characters, and a list of strings as texts always"
            )
        return path

    def back(self, plain: Any) -> Any:
        return plain


@register_form
class ArrayForm(Form):
    """A NumPy array, examples first."""

    name = "numpy"

    @classmethod
    def accepts(cls, data: Any) -> bool:
        return isinstance(data, np.ndarray)

    def plain(self, data: np.ndarray) -> np.ndarray:
        if data.dtype.kind in "UO" and data.size and all(isinstance(entry, str) for entry in data.flat):
            raise BadData("the array holds strings: pass a list of strings, .tolist()")
        return np.asarray(data)

    def back(self, plain: np.ndarray) -> np.ndarray:
        return plain


@register_form
class TensorForm(Form):
    """A torch tensor, examples first.  Samples are on the CPU."""

    name = "torch"

    def __init__(self, dtype: str):
        self.dtype = dtype

    @classmethod
    def accepts(cls, data: Any) -> bool:
        return isinstance(data, torch.Tensor)

    @classmethod
    def of(cls, data: torch.Tensor) -> "TensorForm":
        return cls(str(data.dtype).removeprefix("torch."))

    def plain(self, data: torch.Tensor) -> np.ndarray:
        data = data.detach().cpu()
        return (data.float() if data.dtype == torch.bfloat16 else data).numpy()

    def back(self, plain: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(plain).to(getattr(torch, self.dtype))

    def to_json(self) -> dict[str, Any]:
        return {"dtype": self.dtype}


@register_form
class TextsForm(Form):
    """A list of strings, an example each."""

    name = "texts"

    @classmethod
    def accepts(cls, data: Any) -> bool:
        return isinstance(data, list | tuple) and len(data) > 0 and all(isinstance(entry, str) for entry in data)

    def plain(self, data: list[str] | tuple[str, ...]) -> list[str]:
        return list(data)

    def back(self, plain: list[str]) -> list[str]:
        return plain


@register_form
class LongTextForm(Form):
    """One long text, whose windows are the examples; samples are a list of such windows."""

    name = "text"

    @classmethod
    def accepts(cls, data: Any) -> bool:
        return isinstance(data, str) and not FileForm.accepts(data)

    def plain(self, data: str) -> str:
        return data

    def back(self, plain: list[str]) -> list[str]:
        return plain
