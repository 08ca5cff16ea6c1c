"""Texts that go on from a prompt, and texts with gaps, by a model of sequences: of any length, where it is one of windows.

A text that goes on is one whose end is a gap.  Of padded sequences, which end by themselves, a prompt is how they begin.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from unnoise.data.base import Format
from unnoise.data.prompts import coded
from unnoise.data.sequence_files import END
from unnoise.data.sequence_gaps import putting
from unnoise.data.sequences import Sequences
from unnoise.denoiser import AnyDenoiser
from unnoise.paths import BadData
from unnoise.samplers import Info, Sampler
from unnoise.shapes import AnyState, Int
from unnoise.training.drawing import fill
from unnoise.training.windows import fill_windows


def continue_text(
    denoiser: AnyDenoiser,
    format: Format,
    prompts: Sequence[str],
    length: int | None = None,
    seed: int | None = None,
    steps: int | None = None,
    sampler: Sampler | None = None,
    device: str = "auto",
    batch: int | None = None,
) -> list[str]:
    """Each prompt with what comes after it: `length` symbols more (a window's worth unless told), or the rest of a padded
    sequence.  What is drawn depends on the seed, the prompt and its place among the prompts."""
    form = text_format(format)
    known = [coded(form, prompt) for prompt in prompts]
    x, _ = continued(denoiser, form, known, length, seed, steps, sampler, device, batch)
    sizes = [len(prompt) + wanted(form, length) if form.window else form.length for prompt in known]
    found = [form.texts(row[:size].unsqueeze(0))[0] for row, size in zip(x, sizes, strict=True)]
    if form.symbols != "tokens":
        return found
    before = [
        form.texts(prompt.unsqueeze(0))[0] if len(prompt) else "" for prompt in known
    ]  # a tokenizer's spaces may differ
    return [p + t[len(b) :] if t.startswith(b) else t for p, t, b in zip(prompts, found, before, strict=True)]


def continued(
    denoiser: AnyDenoiser,
    form: Sequences,
    prompts: Sequence[Tensor],
    length: int | None = None,
    seed: int | None = None,
    steps: int | None = None,
    sampler: Sampler | None = None,
    device: str = "auto",
    batch: int | None = None,
) -> tuple[Int[Tensor, "rows size"], Info]:
    """The same by numbers of symbols; after the end of a text stands the number after the last symbol."""
    past = len(form.alphabet)
    if form.window is None:
        if length is not None:
            raise ValueError("--length: the sequences of this run end by themselves, each a line or record: leave it out")
        found: AnyState
        x, fixed = _begun(prompts, [form.length] * len(prompts), past)
        found, info = fill(denoiser, x, fixed, seed, steps, device, batch, sampler=sampler)
        return found, info
    more = wanted(form, length)
    x, fixed = _begun(prompts, [len(prompt) + more for prompt in prompts], past)
    return fill_windows(denoiser, x, fixed, form.window, seed, steps, device, batch, sampler=sampler)


def wanted(form: Sequences, length: int | None) -> int:
    """How many symbols come after a prompt."""
    if length is not None and length < 1:
        raise ValueError(f"--length {length}: draw at least one symbol")
    return form.length if length is None else length


def _begun(prompts: Sequence[Tensor], sizes: list[int], past: int) -> tuple[Tensor, Tensor]:
    """Texts of these sizes that begin by prompts, and what is known of them."""
    x = torch.full((len(sizes), max(sizes, default=0)), past)
    fixed = torch.ones_like(x, dtype=torch.bool)
    for row, (prompt, size) in enumerate(zip(prompts, sizes, strict=True)):
        if len(prompt) >= size:
            raise BadData(f"the prompt has {len(prompt)} symbols, and the run's sequences have up to {size}: shorten it")
        x[row, : len(prompt)] = prompt
        fixed[row, len(prompt) : size] = False
    return x, fixed


def fill_text(
    denoiser: AnyDenoiser,
    format: Format,
    texts: Sequence[str],
    mark: str = "_",
    seed: int | None = None,
    steps: int | None = None,
    sampler: Sampler | None = None,
    device: str = "auto",
    batch: int | None = None,
) -> list[str]:
    """The texts with a symbol drawn in the place of each mark, given the others; all that is no mark stays as it is."""
    form = text_format(format)
    mark = form.checked_mark(mark)
    rows = [coded(form, text, f"text {n}", mark) for n, text in enumerate(texts, 1)]
    past = len(form.alphabet)
    sizes = [len(row) for row in rows] if form.window else [form.length] * len(rows)
    x = torch.full((len(rows), max(sizes, default=0)), past if form.window else form.alphabet.index(END))
    fixed = torch.ones_like(x, dtype=torch.bool)
    for i, row in enumerate(rows):
        if len(row) > sizes[i]:
            raise BadData(f"text {i + 1} has {len(row)} symbols, the model's have up to {sizes[i]}: cut it")
        x[i, : len(row)], fixed[i, : len(row)] = row, row != past
    filled: AnyState
    if form.window is None:
        inner = form.constrained(denoiser)  # type: ignore[arg-type]
        filled, _ = fill(inner, x, fixed, seed, steps, device, batch, sampler=sampler)
    else:
        filled, _ = fill_windows(denoiser, x, fixed, form.window, seed, steps, device, batch, sampler=sampler)
    return [_put(form, text, filled[i : i + 1], fixed[i : i + 1], mark) for i, text in enumerate(texts)]


def _put(form: Sequences, text: str, x: Tensor, fixed: Tensor, mark: str) -> str:
    put = putting(form, x, fixed, mark)
    if form.symbols == "bytes":
        return put(text.encode("utf-8").decode("latin-1")).encode("latin-1").decode("utf-8", errors="replace")
    return put(text)


def text_format(format: Format) -> Sequences:
    if not isinstance(format, Sequences):
        raise BadData(
            f"--prompt and --length are for text, and this run's data is of the kind {format.kind!r}: leave them out"
        )
    return format
