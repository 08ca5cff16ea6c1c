"""Gaps filled by values: what came out as missing is drawn again."""

from torch import Tensor

from unnoise.data.base import Format
from unnoise.denoiser import Denoiser
from unnoise.samplers.replacement import ROUNDS
from unnoise.shapes import Tree
from unnoise.training.drawing import fill
from unnoise.training.windows import fill_windows
from unnoise.tree import map_leaves

TRIES = 20  # draws of a row whose gaps come out as missing values


def filled(
    denoiser: Denoiser,
    format: Format,
    x: Tree,
    fixed: Tree,
    seed: int,
    steps: int | None = None,
    device: str = "auto",
    rounds: int = ROUNDS,
) -> tuple[Tree, int, int]:
    """The states with their gaps filled, the network calls this took, and how many gaps were filled by no value.  What is
    told of the rows is told as it stands there.

    A gap that came out as missing is none the fuller: its row is drawn anew, so that all are given they are not.
    """
    rows = x
    x, told = format.apart(rows)
    if denoiser.code is not None:  # one that cannot say which states are known says so
        row = slice(0, 1)
        denoiser.code.known(*(map_leaves(lambda leaf: leaf[row].to(denoiser.device), tree) for tree in (x, fixed)))
    if format.window is not None:
        assert isinstance(x, Tensor) and isinstance(fixed, Tensor)  # for mypy: sequences are a single leaf
        whole, info = fill_windows(denoiser, x, fixed, format.window, seed, steps, device, rounds=rounds)
        return whole, info.calls, 0
    known, settled, calls, left = x, fixed, 0, 0
    for attempt in range(TRIES):
        known, info = fill(denoiser, known, settled, seed ^ (attempt << 40), steps, device, rounds=rounds, told=told)
        calls += info.calls
        blank = format.blank(format.put_back(rows, known), fixed)  # type: ignore[arg-type]
        left, done = int(blank.sum()), ~blank.any(1)
        if not left:
            break
        settled = map_leaves(lambda leaf, done=done: leaf | done.reshape(-1, *[1] * (leaf.ndim - 1)), fixed)
    return format.put_back(rows, known), calls, left
