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
from typing import Any, Literal

import torch
from torch import Tensor

from unnoise.data.base import BadData, Format, Line
from unnoise.data.files import read_bytes, read_text, suffix_of, write_bytes
from unnoise.processes import Masking, Process, Uniform
from unnoise.shapes import Int, Tree

Symbols = Literal["characters", "bytes", "tokens", "smiles"]
NOISES: dict[str, type[Process]] = {"masking": Masking, "uniform": Uniform}
END = "<end>"
LENGTH = 256  # of a window, unless told
LONGEST = 1024  # of a padded sequence, unless told
CHARACTERS = 512  # distinct ones of a text that is read as characters; more are read as bytes
NUCLEOTIDES, AMINO_ACIDS = set("ACGTN"), set("ACDEFGHIKLMNPQRSTVWYBZXUOJ*-")
SMILES = re.compile(r"\[[^\]]+\]|Br|Cl|Si|Se|@@|%\d\d|[A-Za-z0-9=#$:/\\.()+\-@*~>&]")


@dataclass(kw_only=True)
class Sequences(Format):
    """What was understood of a file of sequences."""

    kind = "sequences"
    suffix = ".txt"

    form: str  # "text", "fasta" or "smiles"
    symbols: Symbols
    alphabet: list[str]  # END last where sequences are padded
    length: int
    padded: bool
    column: str = ""  # of a CSV file of SMILES
    tokenizer: str = ""  # a tokenizer file, as its own JSON
    noise: str = "masking"

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
        if tokenizer is not None:
            symbols = "tokens"
        if symbols is None:
            symbols = "smiles" if form == "smiles" else "characters"
        column, pieces = _pieces(path, form, symbols)
        if form == "text" and symbols == "characters" and len(set(pieces[0])) > CHARACTERS:
            symbols = "bytes"
            column, pieces = _pieces(path, form, symbols)
        packed = len(pieces) < 8 if padded is None else not padded
        own = cls(form=form, symbols=symbols, alphabet=[], length=0, padded=not packed, column=column, noise=noise)
        own.tokenizer = _tokenizer_json(tokenizer) if tokenizer is not None else ""
        split = own._split_all(pieces, path)
        if own.tokenizer:
            vocabulary = own._tokenizer().get_vocab()
            own.alphabet = [token for token, _ in sorted(vocabulary.items(), key=lambda item: item[1])]
        else:
            own.alphabet = sorted({symbol for piece in split for symbol in piece})
        longest = max(map(len, split), default=0)
        if not longest:
            raise BadData(f"{path}: holds no sequence")
        if own.padded:
            own.alphabet.append(END)
            own.length = length or min(longest, LONGEST)
        else:
            own.length = length or min(LENGTH, longest)
        states = own._states(split, path)
        if not len(states):
            raise BadData(f"{path}: {longest} symbols are fewer than one window of {own.length}: pass a smaller --length")
        return own, states

    def lines(self) -> list[Line]:
        shown = (
            "".join(s for s in self.alphabet[:30] if s != END) if self.symbols != "tokens" else ", ".join(self.alphabet[:5])
        )
        how = f"padded to {self.length}" if self.padded else f"windows of {self.length}"
        return [Line(self.form, f"{self.symbols}, {how}", f"{len(self.alphabet)}: {shown!r}", NOISES[self.noise].__name__)]

    def process(self) -> Process:
        return NOISES[self.noise](len(self.alphabet), (self.length,))  # type: ignore[call-arg]

    def encode(self, path: Path) -> Tree:
        return self._states(self._split_all(_pieces(path, self.form, self.symbols)[1], path), path)

    def gaps(self, path: Path, mark: str | None = None) -> tuple[Tree, Tree]:
        """A mark, `_` unless told, stands for each symbol to be filled."""
        mark = "_" if mark is None else mark
        if self.symbols == "tokens":
            raise BadData(f"{path}: a gap cannot be marked in text that a tokenizer cuts into pieces")
        if len(mark) != 1 or mark in self.alphabet:
            raise BadData(f"--mark {mark!r}: choose a single character that is none of the model's symbols")
        split = self._split_all(_pieces(path, self.form, self.symbols, mark)[1], path, mark)
        short = next((n for n, piece in enumerate(split, 1) if not self.padded and len(piece) % self.length), None)
        if short is not None:
            raise BadData(
                f"{path}: sequence {short} has {len(split[short - 1])} symbols, no multiple of the model's window of "
                f"{self.length}: cut it or add to it"
            )
        x = self._states(split, path, mark)
        return x, x != len(self.alphabet)

    def texts(self, x: Int[Tensor, "rows length"]) -> list[str]:
        """Every row as a string, up to its END."""
        out = []
        tool = self._tokenizer() if self.tokenizer else None
        vocabulary = {token: i for i, token in enumerate(self.alphabet)}
        for row in x.tolist():
            symbols = [self.alphabet[i] if i < len(self.alphabet) else "?" for i in row]
            if END in symbols and self.padded:
                symbols = symbols[: symbols.index(END)]
            text = "".join(symbols) if tool is None else tool.decode([vocabulary[s] for s in symbols if s in vocabulary])
            out.append(text.encode("latin-1").decode("utf-8", errors="replace") if self.symbols == "bytes" else text)
        return out

    def write(self, x: Tree, path: Path) -> None:
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

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Sequences":
        return cls(**data)

    def _tokenizer(self):
        return _tokenizers().Tokenizer.from_str(self.tokenizer)

    def _split_all(self, pieces: list[str], path: Path, mark: str = "") -> list[list[str]]:
        """The symbols of every sequence; a padded text has one in each line."""
        if self.padded and self.form == "text":
            pieces = [line for piece in pieces for line in piece.splitlines() if line.strip()]
        return [self._split(piece, path, mark) for piece in pieces]

    def _split(self, text: str, path: Path, mark: str = "") -> list[str]:
        if self.symbols == "tokens":
            return self._tokenizer().encode(text, add_special_tokens=False).tokens
        if self.symbols == "smiles":
            found = re.findall(f"{SMILES.pattern}|{re.escape(mark)}" if mark else SMILES.pattern, text)
            if sum(map(len, found)) != len(text):
                raise BadData(f"{path}: {text[:40]!r} is no SMILES string: name the column that holds them")
            return found
        return list(text)

    def _states(self, split: list[list[str]], path: Path, mark: str = "") -> Int[Tensor, "rows length"]:
        index = {symbol: i for i, symbol in enumerate([*self.alphabet, *([mark] if mark else [])])}
        coded = []
        for n, piece in enumerate(split):
            try:
                coded.append([index[symbol] for symbol in piece])
            except KeyError as error:
                raise BadData(
                    f"{path}: sequence {n + 1} holds {error.args[0]!r}, which is not among the model's {len(index)} symbols"
                ) from error
        if self.padded:
            end = index[END]
            rows = [(row + [end] * (self.length - len(row)))[: self.length] for row in coded]
            return torch.tensor(rows, dtype=torch.int64).reshape(-1, self.length)
        windows = [torch.tensor(row, dtype=torch.int64) for row in coded]
        return torch.cat([w[: len(w) // self.length * self.length].reshape(-1, self.length) for w in windows])


def _pieces(path: Path, form: str, symbols: Symbols, mark: str = "") -> tuple[str, list[str]]:
    """The column's name (SMILES) and the sequences of a file; bytes as the characters of the same number."""
    if form == "text":
        text = read_bytes(path).decode("latin-1") if symbols == "bytes" else read_text(path)
        return "", [text.rstrip("\r\n") if mark else text]
    return _smiles(read_text(path), path) if form == "smiles" else ("", _fasta(read_text(path), path, mark))


def _fasta(text: str, path: Path, mark: str = "") -> list[str]:
    pieces: list[list[str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if line.startswith((">", ";")):
            pieces.append([])
        elif line:
            if not pieces:
                raise BadData(f"{path}: line {number} comes before the first '>' line, so this is no FASTA file")
            odd = next((c for c in line.upper() if c not in AMINO_ACIDS and c != mark.upper()), None)
            if odd is not None:
                raise BadData(f"{path}: line {number} holds {odd!r}, which is no nucleotide or amino acid: remove it")
            pieces[-1].append(line.upper())
    found = ["".join(piece) for piece in pieces]
    if not any(found):
        raise BadData(f"{path}: holds no sequence under its '>' lines")
    return [piece for piece in found if piece]


def _smiles(text: str, path: Path) -> tuple[str, list[str]]:
    rows = list(csv.reader(io.StringIO(text)))
    header = [name.strip() for name in rows[0]]
    where = next((i for i, name in enumerate(header) if name.lower() == "smiles"), None)
    if where is None:
        raise BadData(f"{path}: has no column 'smiles' among {header[:8]}")
    short = next((n for n, row in enumerate(rows[1:], 2) if len(row) <= where), None)
    if short is not None:
        raise BadData(f"{path}: row {short} has no entry in column '{header[where]}'")
    found = [row[where].strip() for row in rows[1:] if row[where].strip()]
    if not found:
        raise BadData(f"{path}: column '{header[where]}' is empty")
    return header[where], found


def _tokenizers():
    try:
        import tokenizers
    except ImportError as error:
        raise BadData("a tokenizer file needs the package tokenizers: pip install 'unnoise[data]'") from error
    return tokenizers


def _tokenizer_json(path: Path) -> str:
    text = read_text(path)
    try:
        _tokenizers().Tokenizer.from_str(text)
    except Exception as error:
        raise BadData(f"{path}: is no tokenizer file of the `tokenizers` format ({error})") from error
    return text


def is_smiles_table(path: Path) -> bool:
    """Whether a CSV file is one of molecules: a column `smiles`, and at most one beside it."""
    if suffix_of(path) != ".csv":
        return False
    head = read_bytes(path)[:4096].decode("utf-8", errors="replace").splitlines()
    names = [name.strip().lower() for name in next(csv.reader(head[:1]), [])]
    return "smiles" in names and len(names) <= 2
