"""Sequences of symbols: text, DNA and protein in FASTA files, molecules as SMILES.

Symbols are characters, bytes, the pieces of a tokenizer file, or the atoms and bonds of SMILES.  A long text is *packed*:
cut into windows of one length, each an example.  Many short sequences are *padded*: one example each, its end marked by a
symbol of its own, END, that also fills what is left.  Either way the states are one finite leaf [rows, length], under
masking unless uniform noise is asked for.
"""

import csv
import io
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unnoise.data import sequence_gaps
from unnoise.data.base import BY_BOTH, BY_CONTENT, BY_NAME, NO, BadData, Format, Line, Spelling
from unnoise.data.end_symbol import EndBarred
from unnoise.data.files import read_bytes, suffix_of, write_bytes
from unnoise.data.reading import Reading
from unnoise.data.registry import register_format
from unnoise.data.sequence_files import (
    END,
    FASTA,
    TEXTS,
    Symbols,
    form_of,
    is_smiles_table,
    pieces_of,
    tokenizer_json,
    tokenizers,
)
from unnoise.data.training_defaults import muon
from unnoise.denoiser import Denoiser
from unnoise.processes import Masking, Process, Uniform
from unnoise.shapes import Int

NOISES: dict[str, type[Process]] = {"masking": Masking, "uniform": Uniform}
LENGTH = 256  # of a window, unless told
LONGEST = 1024  # of a padded sequence, unless told
CHARACTERS = 512  # distinct ones of a text that is read as characters; more are read as bytes
FORMS = {"text": "text", "fasta": "a FASTA file", "smiles": "a file of molecules"}
LINES = re.compile(r"\r\n|\r|\n")  # str.splitlines would also cut at what is part of a character in bytes
WRITTEN = {
    "text": (*TEXTS, ""),
    "fasta": (*FASTA, ""),
    "smiles": (".csv", ".smi"),
}
SMILES = re.compile(r"\[[^\]]+\]|Br|Cl|Si|Se|@@|%\d\d|[A-Za-z0-9=#$:/\\.()+\-@*~>&]")


@register_format
@dataclass(kw_only=True)
class Sequences(Format):
    """What was understood of a file of sequences."""

    kind = "sequences"
    suffixes = (*TEXTS, *FASTA)
    options = {
        "--length": "sequences",
        "--text": "text",
        "--tokenizer": "text and FASTA",
        "--padded": "sequences",
        "--no-padded": "text and FASTA",
        "--noise": "sequences",
    }

    form: str  # "text", "fasta" or "smiles"
    symbols: Symbols
    alphabet: list[str]  # END last where sequences are padded
    length: int
    padded: bool
    column: str = ""  # of a CSV file of SMILES
    dropped: str = ""  # the column beside it
    tokenizer: str = ""  # a tokenizer file, as its own JSON
    noise: str = "masking"
    cut: int = 0  # examples that were longer than `length`

    @classmethod
    def recognises(cls, path: Path, how: Reading) -> int:
        """By name, or as FASTA by the `>` that it begins with; a CSV file of molecules unless its columns are named."""
        suffix = suffix_of(path)
        if suffix in cls.suffixes:
            return BY_NAME
        if suffix == ".csv":
            return BY_BOTH if how.columns is None and is_smiles_table(path) else NO
        return BY_CONTENT if read_bytes(path)[:1] == b">" else NO

    @classmethod
    def taken(cls, path: Path, how: Reading) -> tuple[str, tuple[str, ...]]:
        form = form_of(path)
        other = {"fasta": {"--text"}, "smiles": {"--text", "--tokenizer", "--no-padded"}}.get(form, set())
        return FORMS[form], tuple(option for option in cls.options if option not in other)

    @classmethod
    def read(cls, path: Path, how: Reading) -> tuple["Sequences", Tensor]:
        form, symbols = form_of(path), how.text
        if symbols is not None and symbols not in ("characters", "bytes"):
            raise BadData(f"--text {symbols}: choose characters or bytes")
        padded = True if form == "smiles" else how.padded
        return cls.fit(path, form, how.length, symbols, how.tokenizer, padded, how.noise or "masking")  # type: ignore

    def __post_init__(self) -> None:
        if self.noise not in NOISES:
            raise BadData(f"--noise {self.noise}: sequences are noised by {' or '.join(NOISES)}")

    @classmethod
    def fit(
        cls,
        path: Path,
        form: str,
        length: int | None = None,
        symbols: Symbols | None = None,
        tokenizer: Path | None = None,
        padded: bool | None = None,
        noise: str = "masking",
    ) -> tuple["Sequences", Int[Tensor, "rows length"]]:
        """Read a file, choose its symbols and length."""
        if length is not None and length < 1:
            raise BadData(f"--length {length}: a sequence has at least one symbol")
        if tokenizer is not None:
            symbols = "tokens"
        if symbols is None:
            symbols = "smiles" if form == "smiles" else "characters"
        columns, pieces = pieces_of(path, form, symbols)
        if form == "text" and symbols == "characters" and len(set(pieces[0])) > CHARACTERS:
            symbols = "bytes"
            _, pieces = pieces_of(path, form, symbols)
        packed = len(pieces) < 8 if padded is None else not padded
        own = cls(form=form, symbols=symbols, alphabet=[], length=0, padded=not packed, noise=noise, **columns)
        own.tokenizer = tokenizer_json(tokenizer) if tokenizer is not None else ""
        return own, own._fit_to(own._split_all(pieces, path), length, path)

    @classmethod
    def of_texts(
        cls,
        texts: list[str] | str,
        length: int | None = None,
        symbols: Symbols | None = None,
        tokenizer: Path | None = None,
        noise: str = "masking",
        where: str = "the texts",
    ) -> tuple["Sequences", Int[Tensor, "rows length"]]:
        """The format of strings and its states: an example for each of a list, windows of a single one."""
        padded, pieces = not isinstance(texts, str), [texts] if isinstance(texts, str) else texts
        if length is not None and length < 1:
            raise BadData(f"--length {length}: a sequence has at least one symbol")
        if tokenizer is not None:
            symbols = "tokens"
        if symbols is None:
            symbols = "bytes" if len(set().union(*pieces)) > CHARACTERS else "characters"
        form, column = ("smiles", "smiles") if symbols == "smiles" else ("text", "")
        own = cls(form=form, symbols=symbols, alphabet=[], length=0, padded=padded, noise=noise, column=column)
        own.tokenizer = tokenizer_json(tokenizer) if tokenizer is not None else ""
        return own, own._fit_to(own._split_texts(pieces, where), length, where)

    def _fit_to(self, split: list[list[str]], length: int | None, path: Path | str) -> Int[Tensor, "rows length"]:
        """Choose the alphabet and the length by the symbols of every sequence; their states."""
        if self.tokenizer:
            vocabulary = self.tool().get_vocab()
            self.alphabet = [token for token, _ in sorted(vocabulary.items(), key=lambda item: item[1])]
        else:
            self.alphabet = sorted({symbol for piece in split for symbol in piece})
        longest = max(map(len, split), default=0)
        if not longest:
            raise BadData(f"{path}: holds no sequence")
        if self.padded:
            self.alphabet.append(END)
            self.length = length or min(longest, LONGEST)
            self.cut = sum(len(piece) > self.length for piece in split)
        else:
            self.length = length or min(LENGTH, longest)
        states = self.states(split, path)
        if not len(states):
            raise BadData(f"{path}: {longest} symbols are fewer than one window of {self.length}: pass a smaller --length")
        return states

    def lines(self) -> list[Line]:
        shown = (
            "".join(s for s in self.alphabet[:30] if s != END) if self.symbols != "tokens" else ", ".join(self.alphabet[:5])
        )
        how = f"padded to {self.length}" if self.padded else f"windows of {self.length}"
        how += f", {self.cut} longer ones cut" if self.cut else ""
        own = Line(self.form, f"{self.symbols}, {how}", f"{len(self.alphabet)}: {shown!r}", NOISES[self.noise].__name__)
        return [own, Line(self.dropped, "left out", "", "")] if self.dropped else [own]

    @property
    def suffix(self) -> str:  # type: ignore[override]
        return {"fasta": ".fa", "smiles": ".csv"}.get(self.form, ".txt")

    def process(self) -> Process:
        return NOISES[self.noise](len(self.alphabet), (self.length,))  # type: ignore[call-arg]

    def network_hints(self) -> dict[str, Any]:
        """Windows are cut anywhere, so that a position means nothing in itself."""
        return {"windows": not self.padded}

    def training(self, preset: str, on_cpu: bool) -> dict[str, Any]:
        return {"batch_size": 32 if on_cpu else 128, **muon(preset)}

    def few_rows_remedy(self) -> str:
        if self.form == "smiles":
            return super().few_rows_remedy()
        each = "sequence" if self.form == "fasta" else "line"
        if self.padded:
            return f"add {each}s, or pass --no-padded and a small --length for windows"
        return f"pass --length {max(1, self.length // 4)} or less, or --padded for one example per {each}"

    def constrained(self, denoiser: Denoiser) -> Denoiser:
        """A padded sequence does not end before a symbol that is known."""
        if self.padded and self.noise == "masking" and denoiser.code is None and not isinstance(denoiser.network, EndBarred):
            denoiser.network = EndBarred(denoiser.network, self.alphabet.index(END), len(self.alphabet))
        return denoiser

    def encode(self, path: Path) -> Tensor:
        return self.states(self._split_all(pieces_of(path, self.form, self.symbols)[1], path), path)

    def gaps(self, path: Path, mark: str | None = None) -> tuple[Tensor, Tensor]:
        """A mark, `_` unless told, stands for each symbol to be filled.  Sequences of windows have a row each, of any
        length; after the end of a short one stands the number after the last symbol, and counts as known."""
        mark = self.checked_mark(mark)
        return sequence_gaps.gaps_of(
            self, self._split_all(pieces_of(path, self.form, self.symbols, mark)[1], path, mark), mark, path
        )

    def encode_texts(self, texts: list[str] | str, where: str = "the texts") -> Tensor:
        """The states of strings: of every one, or of the windows of a single one."""
        return self.states(self._split_texts([texts] if isinstance(texts, str) else texts, where), where)

    def gaps_of_texts(self, texts: list[str], mark: str | None = None, where: str = "the texts") -> tuple[Tensor, Tensor]:
        """The states of strings with gaps, and which of their coordinates are known."""
        mark = self.checked_mark(mark)
        return sequence_gaps.gaps_of(self, self._split_texts(texts, where, mark), mark, where)

    def filled_texts(
        self, x: Int[Tensor, "rows length"], texts: list[str], mark: str | None = None, where: str = "the texts"
    ) -> list[str]:
        """Strings with what was drawn in the place of their marks."""
        return sequence_gaps.filled_texts(self, x, texts, mark, where)

    def checked_mark(self, mark: str | None) -> str:
        """What stands for a gap."""
        mark = "_" if mark is None else mark
        mark = mark.upper() if self.form == "fasta" else mark  # as its sequences are
        if len(mark) != 1 or mark.isspace() or (mark in self.alphabet and self.symbols != "tokens"):
            raise BadData(f"--mark {mark!r}: choose a single character that is no space and none of the model's symbols")
        if self.symbols == "bytes" and not mark.isascii():
            raise BadData(f"--mark {mark!r}: is more than one byte: choose an ASCII character")
        return mark

    def texts(self, x: Int[Tensor, "rows length"]) -> list[str]:
        """Every row as a string, up to its END."""
        out = []
        tool = self.tool() if self.tokenizer else None
        vocabulary = {token: i for i, token in enumerate(self.alphabet)}
        for symbols in self._rows(x):
            text = "".join(symbols) if tool is None else tool.decode([vocabulary[s] for s in symbols if s in vocabulary])
            out.append(text.encode("latin-1").decode("utf-8", errors="replace") if self.symbols == "bytes" else text)
        return out

    def seen(self, x: Int[Tensor, "rows length"]) -> list[str]:  # type: ignore[override]
        return self.texts(x)

    def spelling(self) -> Spelling:
        if self.symbols == "tokens":
            raise BadData("a rule of how texts are written is read by characters, and this run has tokens: train without")
        return Spelling(self.alphabet, self.alphabet.index(END) if self.padded else None, self.symbols == "bytes")

    def _rows(self, x: Int[Tensor, "rows length"]) -> list[list[str]]:
        """The symbols of every row, up to its END."""
        if bool((x >= len(self.alphabet)).any()):
            raise BadData("some symbols are still masked: draw to time 0 by a method that reveals all, as Ancestral does")
        rows = [[self.alphabet[i] for i in row] for row in x.tolist()]
        return [row[: row.index(END)] if self.padded and END in row else row for row in rows]

    def check_out(self, path: Path) -> None:
        super().check_out(path)
        if suffix_of(path) not in WRITTEN[self.form]:
            what = {"fasta": "FASTA is", "smiles": "molecules are"}.get(self.form, "text is")
            known = ", ".join(suffix for suffix in WRITTEN[self.form] if suffix)
            raise BadData(f"{path}: {what} written as {known}, gzipped or not: rename it")

    @property
    def window(self) -> int | None:
        return None if self.padded else self.length

    def write(self, x: Tensor, path: Path) -> None:
        if self.symbols == "bytes":  # raw, for a window may begin or end within a character
            rows = [bytes(map(ord, row)) for row in self._rows(x)]
            write_bytes(path, (b"\n" if self.padded else b"\n\n").join(rows) + b"\n")
            return
        texts = self.texts(x)
        if self.form == "fasta":
            body = "".join(
                f">sample{i}\n" + "".join(t[j : j + 70] + "\n" for j in range(0, len(t), 70)) for i, t in enumerate(texts)
            )
        elif self.form == "smiles":
            table = io.StringIO()
            csv.writer(table).writerows([[self.column], *[[t] for t in texts]])
            body = table.getvalue()
        else:
            body = "\n".join(texts) + "\n" if self.padded else "\n\n".join(texts) + "\n"
        write_bytes(path, body.encode("utf-8"))

    def write_filled(self, x: Int[Tensor, "rows length"], source: Path, path: Path, mark: str | None = None) -> None:
        """The file `source` with what was drawn in the place of its marks; all else in it stays as it is."""
        sequence_gaps.write_filled(self, x, source, path, mark)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Sequences":
        return cls(**data)

    def tool(self) -> Any:
        """The tokenizer itself."""
        return tokenizers().Tokenizer.from_str(self.tokenizer)

    def _split_all(self, pieces: list[str], path: Path, mark: str = "") -> list[list[str]]:
        """The symbols of every sequence; a padded text has one in each line."""
        if self.padded and self.form == "text":
            pieces = [line for piece in pieces for line in LINES.split(piece) if line.strip()]
        return [self.split(piece, path, mark) for piece in pieces]

    def _split_texts(self, texts: list[str], where: str, mark: str = "") -> list[list[str]]:
        """The symbols of every string; bytes as the characters of the same number."""
        if self.symbols == "bytes":
            texts = [text.encode().decode("latin-1") for text in texts]
        return [self.split(text, where, mark) for text in texts]

    def split(self, text: str, path: Path | str, mark: str = "") -> list[str]:
        """The symbols of one sequence; `path` is what an error names."""
        if self.symbols == "tokens":
            tool, parts = self.tool(), re.split(f"({re.escape(mark)})", text) if mark else [text]
            cut = [[mark] if part == mark else tool.encode(part, add_special_tokens=False).tokens for part in parts if part]
            return [token for tokens in cut for token in tokens]
        if self.symbols == "smiles":
            found = re.findall(f"{SMILES.pattern}|{re.escape(mark)}" if mark else SMILES.pattern, text)
            if sum(map(len, found)) != len(text):
                raise BadData(f"{path}: {text[:40]!r} is no SMILES string: name the column that holds them")
            return found
        return list(text)

    def states(self, split: list[list[str]], path: Path | str, mark: str = "") -> Int[Tensor, "rows length"]:
        coded = self.coded(split, path, mark)
        if self.padded:
            end = self.alphabet.index(END)
            rows = [(row + [end] * (self.length - len(row)))[: self.length] for row in coded]
            return torch.tensor(rows, dtype=torch.int64).reshape(-1, self.length)
        windows = [torch.tensor(row, dtype=torch.int64) for row in coded]
        return torch.cat([w[: len(w) // self.length * self.length].reshape(-1, self.length) for w in windows])

    def coded(self, split: list[list[str]], path: Path | str, mark: str = "") -> list[list[int]]:
        """Symbols by number."""
        index = {symbol: i for i, symbol in enumerate([*self.alphabet, *([mark] if mark else [])])}
        coded = []
        for n, piece in enumerate(split):
            try:
                coded.append([index[symbol] for symbol in piece])
            except KeyError as error:
                raise BadData(
                    f"{path}: sequence {n + 1} holds {error.args[0]!r}, which is not among the model's {len(index)} symbols"
                ) from error
        return coded
