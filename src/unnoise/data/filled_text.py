"""What was drawn in the gaps of sequences, as it is written in the place of their marks."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from torch import Tensor

from unnoise.shapes import Bool, Int


def by_symbol(
    alphabet: list[str],
    x: Int[Tensor, "rows length"],
    fixed: Bool[Tensor, "rows length"],
    ended: Bool[Tensor, "rows length"],
) -> Iterator[str]:
    """One text for each gap; nothing after a sequence has ended."""
    for i, end in zip(x[~fixed].tolist(), ended[~fixed].tolist(), strict=True):
        yield "" if end else alphabet[i]


def by_run(
    tool: Any, x: Int[Tensor, "rows length"], fixed: Bool[Tensor, "rows length"], ended: Bool[Tensor, "rows length"]
) -> Iterator[str]:
    """One text for each run of gaps, by a tokenizer: what they add to the text before them, for a token by itself does
    not say whether a space comes before it."""
    for row, known, over in zip(x.tolist(), fixed.tolist(), ended.tolist(), strict=True):
        for first, last in runs(known):
            shown = [i for i, end in zip(row[:last], over[:last], strict=True) if not end]
            before, whole = tool.decode(row[:first]), tool.decode(shown)
            yield whole[len(before) :] if whole.startswith(before) else tool.decode(shown[first:])


def runs(known: list[bool]) -> list[tuple[int, int]]:
    """The first place and that after the last of each run of gaps."""
    edges = [i for i, (one, other) in enumerate(pairwise([True, *known, True])) if one != other]
    return list(zip(edges[::2], edges[1::2], strict=True))
