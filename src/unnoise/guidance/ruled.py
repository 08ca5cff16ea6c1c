"""Rows of a table that satisfy a rule: the ways to draw them, the plainest first.

    by construction one column of an equality between numbers is computed from the others (`equalities`), whatever the way
    rejection       rows are drawn as ever: exact for any model
    first labels    where fewer than ENOUGH pass: what the rule says of labels is satisfied by construction, and rejection
                    sees to the rest (`first_labels`)

Every row is looked at as it is written, whichever way it was drawn.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from unnoise.data.base import Format
from unnoise.denoiser import AnyDenoiser
from unnoise.guidance.allowed import allowed, check_given
from unnoise.guidance.equalities import computed, solved
from unnoise.guidance.first_labels import Combinations, first_labels
from unnoise.guidance.rejection import Attempt, Way, attempts_for, until
from unnoise.guidance.rules import ColumnRule
from unnoise.samplers import Info
from unnoise.samplers.sample import seed_of
from unnoise.shapes import Tree

ENOUGH = 0.5  # of plain draws that pass

Draw = Callable[..., tuple[Tree, Info]]  # a denoiser, a format, n, options of `training.drawing.draw`


def satisfying(
    draw: Draw,
    denoiser: AnyDenoiser,
    format: Format,
    n: int,
    text: str,
    attempts: int | None,
    plain: bool,
    shown: bool = False,
    **options: Any,
) -> tuple[Tree, Info]:
    """n rows that `draw` draws and that satisfy a rule, fewer where so many attempts let too few through.

    `plain`: whether `draw` draws from the denoiser itself, so that labels may be drawn first; `shown`: whether code of one's
    own is shown rows as they are drawn.  Cells that an equality computes are `info.computed`.
    """
    rule, given = ColumnRule(text, format), options.get("given") or {}
    check_given(rule, given)
    equal = solved(rule, given)
    if equal and shown:
        raise equal[0].part.spot.error(
            f"{equal[0].name!r} is computed after rows are drawn, and a reward is shown them before: leave one of them out"
        )
    combinations = Combinations.of(rule, allowed(rule, given), given)
    seed, progress = seed_of(options.pop("seed", None)), options.pop("progress", False)
    options["seed"] = seed

    def attempt(**more: Any) -> Attempt:
        def tried(first: int, count: int) -> tuple[Tree, Tensor, Info]:
            x, info = draw(denoiser, format, count, first=first, **options, **more)
            return x, torch.as_tensor(rule.holds(x, {**given, **computed(equal, rule, x, given)})), info

        return tried

    def ways() -> Iterator[Way]:
        labels_first = plain and bool(combinations.places)
        yield Way(attempt(), ENOUGH if labels_first else 0.0)
        if labels_first:
            found = first_labels(denoiser, format, combinations, given, seed)
            info = Info(calls=found.calls, rows=found.rows, seed=seed)
            yield Way(attempt(labels=found), 0.0, "labels first", found.log_probability, found.error, info)

    x, info = until(ways(), n, attempts or attempts_for(n), progress)
    info.computed = computed(equal, rule, x, given)
    return x, info
