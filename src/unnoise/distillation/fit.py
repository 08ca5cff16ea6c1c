"""`un.distill`: a student of a denoiser in memory.  `unnoise distill` does the same with a run on disk.

Adam, its rate falling to 0 within every round of progressive distillation and even through consistency's, whose target
moves; what is handed on, and returned, are averaged weights.
"""

from contextlib import AbstractContextManager
from copy import deepcopy
from math import cos, pi
from typing import Any

import torch

from unnoise.checks import whole
from unnoise.conditions import Condition, checked
from unnoise.conditions import rows_of as rows_of_condition
from unnoise.denoiser import AnyDenoiser
from unnoise.distillation.methods import distillation, plan_of
from unnoise.noise import NoiseSource
from unnoise.shapes import Tree
from unnoise.tree import batch_size as rows_of
from unnoise.tree import first_leaf
from unnoise.tree import rows as some_rows


def distill(
    denoiser: AnyDenoiser,
    x0: Tree,
    method: str = "consistency",
    steps: int = 4,
    *,
    updates: int = 1000,
    batch_size: int = 128,
    lr: float = 1e-3,
    seed: int = 0,
    condition: Condition | None = None,
    averaged: float = 0.99,
    **options: Any,
) -> AnyDenoiser:
    """A copy of the denoiser that needs `steps` steps, and is sampled in so many unless told.

    `method` is progressive (numbers) or consistency (numbers, categories under uniform or masked noise, products of these),
    with its options; `x0` are rows of data, `condition` what the network is told of them.
    """
    x0 = denoiser.space.check(x0, "x0")
    rows, where = _rows(x0), first_leaf(x0).device
    told, count = checked(condition, rows), min(whole(batch_size, "batch_size"), rows)
    student = deepcopy(denoiser).train().requires_grad_(True)
    student.process.requires_grad_(False)  # a schedule that was learned rests
    run = distillation(method, student, denoiser, whole(steps, "steps"), options)
    parameters = [p for p in student.parameters() if p.requires_grad]
    if not parameters:
        raise ValueError(
            f"{type(denoiser).__name__} has no weights to train: distil a network, un.Denoiser(network, process)"
        )
    copies = [p.detach().clone() for p in parameters]
    adam = torch.optim.Adam(parameters, lr, betas=(0.9, 0.99))
    for k in range(whole(updates, "updates")):
        run.advance(k / updates, _Shown(parameters, copies))
        fall = (1 + cos(pi * run.within(k / updates))) / 2 if method == "progressive" else 1.0
        adam.param_groups[0]["lr"] = lr * min(1.0, (k + 1) / 20) * fall
        index = (NoiseSource(seed, count, where).at("rows", k).uniform() * rows).long().clamp_max(rows - 1)
        noise = NoiseSource(seed, count, where).at("update", k)
        loss = run(some_rows(x0, index), noise, rows_of_condition(told, index)).loss.mean()
        if not bool(loss.isfinite()):
            raise FloatingPointError(f"the loss is {loss.item()} at update {k + 1}: try a lower lr (now {lr:g})")
        adam.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        adam.step()
        with torch.no_grad():
            torch._foreach_lerp_(copies, parameters, 1 - min(averaged, (2 + k) / (11 + k)))  # type: ignore[arg-type]
    with torch.no_grad():
        torch._foreach_copy_(parameters, copies)  # type: ignore[arg-type]
    student = student.eval().requires_grad_(False)
    student.plan = plan_of(method, student.process, steps)
    return student


def _rows(x0: Tree) -> int:
    rows = rows_of(x0)
    if not rows:
        raise ValueError("x0 has no rows: pass at least one example")
    return rows


class _Shown(AbstractContextManager):
    """For the length of a `with`, averaged weights in place of the last ones."""

    def __init__(self, parameters: list[Any], copies: list[torch.Tensor]):
        self.parameters, self.copies = parameters, copies

    def __enter__(self) -> None:
        self.own = [p.detach().clone() for p in self.parameters]
        with torch.no_grad():
            torch._foreach_copy_(self.parameters, self.copies)

    def __exit__(self, *_: Any) -> None:
        with torch.no_grad():
            torch._foreach_copy_(self.parameters, self.own)
