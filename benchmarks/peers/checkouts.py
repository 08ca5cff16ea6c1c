"""Modules of projects that are no packages, imported from a clone of theirs; nothing of them is kept here.

`module("mdlm", "diffusion", folder, absent=["lightning"])` imports diffusion.py of the clone folder/mdlm.  What is named in
`absent` (trainers, tokenizers, file systems) is replaced by a stand-in, since what is compared here does not use it.  Each
clone is imported by itself: several have a utils.py.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

from torch import Tensor

from peers.table import NotHere

HOMES = {
    "edm": "NVlabs/edm",
    "score_sde_pytorch": "yang-song/score_sde_pytorch",
    "mdlm": "kuleshov-group/mdlm",
    "duo": "s-sahoo/duo",
    "Score-Entropy-Discrete-Diffusion": "louaaron/Score-Entropy-Discrete-Diffusion",
    "gidd": "dvruette/gidd",
    "tauLDR": "andrew-cr/tauLDR",
}


K_PARTS = ("augmentation", "config", "evaluation", "external", "gns", "layers", "models", "utils")  # with needs of their own


class _Anything(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name, (_Nothing,), {})


class _Nothing(metaclass=_Anything):
    """Any attribute of a stand-in: a base class, a decorator, a function without effect."""

    def __new__(cls, *args: Any, **options: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) else super().__new__(cls)

    def __init__(self, *args: Any, **options: Any):
        pass

    def __call__(self, decorated: Any) -> Any:
        return decorated


class _StandIn(ModuleType):
    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name, (_Nothing,), {})


class _Absent(MetaPathFinder, Loader):
    def __init__(self, names: Sequence[str]):
        self.names = tuple(names)

    def holds(self, name: str) -> bool:
        return any(name == own or name.startswith(f"{own}.") for own in self.names)

    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self, is_package=True) if self.holds(name) else None

    def create_module(self, spec):
        return _StandIn(spec.name)

    def exec_module(self, module):
        pass


def module(project: str, name: str, folder: Path | None = None, absent: Sequence[str] = ()) -> Any:
    """A module of a clone in `folder`, or without one of an installed package."""
    if folder is not None and not (folder / project).is_dir():
        raise NotHere(f"git clone https://github.com/{HOMES[project]} {folder / project}")
    finder, before = _Absent(absent), set(sys.modules)
    roots = [] if folder is None else [str((folder / project).resolve())]
    sys.meta_path.insert(0, finder)
    sys.path[:0] = roots
    try:
        return import_module(name)
    finally:
        sys.meta_path.remove(finder)
        sys.path[:] = [entry for entry in sys.path if entry not in roots]
        for other in set(sys.modules) - before:
            source = getattr(sys.modules[other], "__file__", None) or ""
            if finder.holds(other) or any(source.startswith(root) for root in roots):
                del sys.modules[other]


@contextmanager
def drawn_from(owner: Any, function: str, answer: Callable[[Tensor], Tensor] | None = None) -> Iterator[list[Tensor]]:
    """The laws that `owner.function`, a draw from its first argument, is asked for; it answers the likeliest."""
    laws: list[Tensor] = []

    def draw(law: Tensor, *args: Any, **options: Any) -> Tensor:
        laws.append(law.clone())
        return law.argmax(-1) if answer is None else answer(law)

    with patch.object(owner, function, draw):
        yield laws


class Caught:
    """Stands for torch.multinomial: keeps the law that is drawn from, and answers the likeliest."""

    law: Tensor

    def __call__(self, law: Tensor, **options: Any) -> Tensor:
        self.law = law
        return law.argmax(-1, keepdim=True)


def bare(cls: type, **attributes: Any) -> Any:
    """An object of a class whose __init__ is not run, with these attributes."""
    made = cls.__new__(cls)
    for name, value in attributes.items():
        object.__setattr__(made, name, value)
    return made


def k_sampling() -> Any:
    """k_diffusion.sampling, without the packages that its other parts need."""
    theirs = module("k_diffusion", "k_diffusion.sampling", absent=[*(f"k_diffusion.{part}" for part in K_PARTS), "torchsde"])
    theirs.utils.append_dims = lambda x, ndim: x.reshape(*x.shape, *[1] * (ndim - x.ndim))
    return theirs
