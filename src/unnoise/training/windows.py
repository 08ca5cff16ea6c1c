"""Texts of any length, by a model that sees a window of them at a time.

A model of windows is a law of L successive symbols, wherever they stand.  Of a longer text with gaps, a run of gaps is drawn
given all that is known in one window around it; other gaps in that window stay masked, which sums over them.  The windows
follow the text from left to right, and what one has drawn the next is given:

    a run that fits into a window      stands in the middle of it, with as much before it as after it
    a longer run                       half a window of what comes before, and the other half is drawn: this repeats;
                                       backwards from what comes after, where a text begins by the run
    the end of a text                  what would come after it is masked, drawn and forgotten

Each draw is exact given what its window shows, for symbols once revealed stay under masking.  So of a chain in which every
symbol depends on the one before it, gaps and continuations have the exact law as long as the symbol on either side of a run
lies in its window.  Windows of a text that do not overlap are drawn together: neither sees anything of the other.

Where vectors stand for the symbols, the other gaps in a window are drawn with the run and forgotten.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from unnoise.data.filled_text import runs
from unnoise.denoiser import AnyDenoiser
from unnoise.samplers import FirstHitting, Info, Sampler
from unnoise.samplers.replacement import ROUNDS
from unnoise.samplers.sample import seed_of
from unnoise.shapes import AnyState, Bool, Int
from unnoise.training.drawing import fill

Gap = tuple[int, int]  # the first place of a run of gaps, and the one after its last


@dataclass(frozen=True)
class Window:
    """Where a window of a text begins, and the runs of gaps that are drawn in it."""

    start: int
    drawn: tuple[Gap, ...]

    @property
    def first(self) -> int:
        """The first place that is drawn: it is drawn once, so that it tells the window from all others of its text."""
        return self.drawn[0][0]


def start_of(run: Gap, size: int, length: int) -> int:
    """Where the window of a run begins, in a text of this size."""
    first, last = run
    fits = last - first + (first > 0) + (last < size) <= length
    if fits:
        wanted = first - (length - (last - first)) // 2
    else:
        wanted = first - length // 2 if first > 0 or last == size else last - (length + 1) // 2
    return max(0, min(wanted, size - length))


def windows_of(gaps: list[Gap], size: int, length: int) -> tuple[list[Window], list[Gap]]:
    """The windows of a text that can be drawn now, and the gaps that are left.

    The run that a window is for is drawn as far as the window goes; further ones if a quarter of a window comes after them.
    """
    found, left, end = list[Window](), list[Gap](), 0
    for at, (first, last) in enumerate(gaps):
        if found and first < found[-1].drawn[-1][1]:
            continue  # drawn already
        start = start_of((first, last), size, length)
        if found and start < end:
            left.append((first, last))
            continue
        end = start + length
        most = end if end >= size else end - length // 4
        own = [(max(first, start), min(last, end)), *(run for run in gaps[at + 1 :] if run[1] <= most)]
        left += [(first, start)] if first < start else []
        left += [(end, last)] if last > end else []
        found.append(Window(start, tuple(own)))
    return found, left


def fill_windows(
    denoiser: AnyDenoiser,
    x: Int[Tensor, "rows size"],
    fixed: Bool[Tensor, "rows size"],
    length: int,
    seed: int | None = None,
    steps: int | None = None,
    device: str = "auto",
    batch: int | None = None,
    rounds: int = ROUNDS,
    sampler: Sampler | None = None,
) -> tuple[Int[Tensor, "rows size"], Info]:
    """Texts with their gaps drawn, by a model of windows of this length, and what it took.

    Where a text is shorter than others, what comes after its end is known and holds the number after the last symbol, as
    `Sequences.gaps` gives it.  A text's draws depend on the seed, its place and the text alone.
    """
    past, x, seed = denoiser.space.size, x.clone(), seed_of(seed)  # type: ignore[attr-defined]
    sizes = (~(fixed & (x == past))).sum(1).tolist()
    gaps = [runs(row) for row in fixed.tolist()]
    if sampler is None and steps is None and denoiser.process.absorbing and FirstHitting().refuse(denoiser.process) is None:
        sampler = FirstHitting()  # exact, and a call for each gap at most
    shown = fixed & (x != past)
    total = Info(seed=seed)
    while any(gaps):
        chosen = list[tuple[int, Window]]()
        for row, open_runs in enumerate(gaps):
            if open_runs:
                found, gaps[row] = windows_of(open_runs, sizes[row], length)
                chosen += [(row, window) for window in found]
        states, known = (_cut(tree, chosen, length) for tree in (x, shown))
        numbers = torch.tensor([(row << 32) + window.first for row, window in chosen])
        drawn: AnyState
        drawn, info = fill(
            denoiser, states.masked_fill(~known, 0), known, seed, steps, device, batch, rounds, sampler, numbers
        )
        total.calls, total.rows = total.calls + info.calls, total.rows + info.rows
        for i, (row, window) in enumerate(chosen):
            for first, last in window.drawn:
                x[row, first:last] = drawn[i, first - window.start : last - window.start]
                shown[row, first:last] = True
    return x, total


def _cut(values: Tensor, chosen: list[tuple[int, Window]], length: int) -> Tensor:
    """The windows of texts; zeros, or nothing known, after the end of the longest."""
    spare = torch.zeros(len(values), length, dtype=values.dtype)
    padded = torch.cat([values, spare], 1)
    return torch.stack([padded[row, window.start : window.start + length] for row, window in chosen])
