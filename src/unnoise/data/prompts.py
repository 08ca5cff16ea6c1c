"""A piece of text as the symbols of a model, or in one line what the model has no symbol for."""

import re
from typing import Any

import torch
from torch import Tensor

from unnoise.data.sequences import Sequences
from unnoise.paths import BadData
from unnoise.shapes import Int


def coded(form: Sequences, text: str, what: str = "the prompt", mark: str = "") -> Int[Tensor, "length"]:
    """The symbols of a text by number; a mark is the number after the last, and stands for a symbol to be drawn."""
    if form.form == "fasta":
        text = re.sub(r"\s", "", text).upper()
    written = text.encode("utf-8").decode("latin-1") if form.symbols == "bytes" else text
    known = {symbol: i for i, symbol in enumerate(form.alphabet)} | ({mark: len(form.alphabet)} if mark else {})
    if form.symbols == "tokens":
        unknown = _unknown_to(form.tool(), text.replace(mark, " ") if mark else text)
    elif form.symbols == "bytes":
        unknown = [c for c in text if not all(chr(byte) in known for byte in c.encode("utf-8"))]
    else:
        unknown = [symbol for symbol in form.split(written, what, mark) if symbol not in known]
    if unknown:
        named = ", ".join(map(repr, dict.fromkeys(unknown)))
        raise BadData(f"{what} holds {named}, not among the {len(form.alphabet)} symbols of the model: leave out or replace")
    return torch.tensor([known[symbol] for symbol in form.split(written, what, mark)], dtype=torch.int64)


def _unknown_to(tool: Any, text: str) -> list[str]:
    """The characters that a tokenizer drops, or writes as its token for what it does not know."""
    found = tool.encode(text, add_special_tokens=False)
    stranger = getattr(tool.model, "unk_token", None)
    covered = set[int]()
    for token, (first, last) in zip(found.tokens, found.offsets, strict=True):
        if token != stranger:
            covered.update(range(first, last))
    return [c for i, c in enumerate(text) if i not in covered and not c.isspace()]
