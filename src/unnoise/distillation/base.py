"""What methods of distillation have in common: a student in training, a frozen teacher, and rounds.

A distillation stands in the place of an `Objective`: `forward(x0, noise, condition)` returns `Terms` whose `loss`, one
number per row, is what the student minimises.  It bounds nothing.  Training is cut into rounds of equal length; before round
r >= 1 `advance(share)` hands the student so far (its averaged copy, if the caller has put one in place) to `_begin`, and the
method says what becomes of it.  All that later rounds need is in `kept()`, by which a training that was cut
short goes on.
"""

from abc import abstractmethod
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from unnoise.checks import whole
from unnoise.conditions import Condition, checked
from unnoise.denoiser import AnyDenoiser
from unnoise.noise import NoiseSource
from unnoise.objectives import Terms
from unnoise.predictions import Prediction
from unnoise.processes import Process
from unnoise.shapes import AnyState, Float, Tree
from unnoise.tree import batch_size, first_leaf

Part = TypeVar("Part", bound=nn.Module)
STUDENT, ROUND = "denoiser.", "round"
WHOLE = ""  # the name of the leaf of a process that has none


def frozen(module: Part) -> Part:
    """A copy that is not trained."""
    return deepcopy(module).eval().requires_grad_(False)


def parts_of(process: Process) -> dict[str, Process]:
    """The leaves by name, or the process itself as `WHOLE`."""
    nested = [name for name, leaf in process.leaves.items() if leaf.leaves]
    if nested:
        raise ValueError(
            f"leaf {nested[0]!r} is a product within a product, which no distillation knows: make its leaves one"
        )
    return dict(process.leaves) or {WHOLE: process}


def part(tree: Any, name: str) -> Any:
    """What belongs to a leaf, of a state or a prediction."""
    if isinstance(tree, Prediction):
        return tree.by_leaf() if name == WHOLE else tree[name]  # type: ignore[index]
    return tree if name == WHOLE else tree[name]


def whole_of(parts: dict[str, Tensor]) -> Tree:
    return parts[WHOLE] if WHOLE in parts else dict[str, Tree](parts)  # type: ignore[arg-type]


class Distillation(nn.Module):
    is_bound = False

    def __init__(self, student: AnyDenoiser, teacher: AnyDenoiser, rounds: int):
        super().__init__()
        if student.process.grid is not None:
            raise ValueError(f"{type(student.process).__name__} is discrete in time: distil a model of continuous time")
        if student.code is not None:
            raise ValueError(
                "what is noised stands for the data by a code: such models are not distilled; distil one of the data"
            )
        if repr(student.process) != repr(teacher.process):
            raise ValueError(
                f"the student noises by {student.process}, the teacher by {teacher.process}: let both be the same"
            )
        self.rounds, self.round = whole(rounds, "rounds"), 0
        self.denoiser, self.parts = student, parts_of(student.process)
        self.teacher = frozen(teacher)

    @abstractmethod
    def losses(self, x0: AnyState, noise: NoiseSource, told: dict[str, Any]) -> Float[Tensor, "batch"]:
        """What the student minimises, for each row."""

    @abstractmethod
    def _begin(self) -> None:
        """What the next round begins with; `self.round` is its number, and the student is as the last one left it."""

    def forward(self, x0: Tree, noise: NoiseSource | None = None, condition: Condition | None = None) -> Terms:
        x0 = self.denoiser.space.check(x0, "x0")
        leaf = first_leaf(x0)
        noise = noise if noise is not None else NoiseSource.fresh(batch_size(x0), leaf.device)
        loss = self.losses(x0, noise, checked(condition, batch_size(x0)))
        none = torch.zeros_like(loss)
        return Terms({"prior": none, "diffusion": loss, "reconstruction": none}, loss, is_bound=False)

    @property
    def phase(self) -> int:
        """What changes when a round begins."""
        return self.round

    def begin(self, done: float) -> None:
        """Rounds begin by `advance`, with averaged weights in place."""

    def train(self, mode: bool = True) -> "Distillation":
        """Teachers stay as they are when they are asked."""
        super().train(mode)
        for child in self.children():
            child.train(mode and child is self.denoiser)
        return self

    def advance(self, share: float, shown: AbstractContextManager | None = None) -> bool:
        """Begin the round that belongs to a share of the training, if it is another one; `shown` puts the weights of the
        student in place that are handed on."""
        due = min(int(share * self.rounds + 1e-9), self.rounds - 1)
        if due <= self.round:
            return False
        with shown or nullcontext(), torch.no_grad():
            while self.round < due:
                self.round += 1
                self._begin()
        return True

    def within(self, share: float) -> float:
        """The share of the present round that lies behind."""
        return min(max(share * self.rounds - self.round, 0.0), 1.0)

    def kept(self) -> dict[str, Tensor]:
        """All but the student."""
        state = {name: value for name, value in self.state_dict().items() if not name.startswith(STUDENT)}
        return {**state, ROUND: torch.tensor(self.round)}

    def restore(self, kept: dict[str, Tensor]) -> None:
        own = {name: value for name, value in self.state_dict().items() if name.startswith(STUDENT)}
        self.load_state_dict({**own, **{name: value for name, value in kept.items() if name != ROUND}})
        self.round = int(kept[ROUND])


def handed_on(teacher: nn.Module, student: nn.Module) -> None:
    """The student's weights become the teacher's."""
    teacher.load_state_dict(student.state_dict())
