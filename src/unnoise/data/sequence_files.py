"""The sequences that a file holds, as it writes them: text, FASTA, a table of SMILES; and tokenizer files."""

import csv
import io
from pathlib import Path
from typing import Any, Literal

from unnoise.data.files import read_bytes, read_text, separator_of, suffix_of, without_blanks
from unnoise.paths import BadData

Symbols = Literal["characters", "bytes", "tokens", "smiles"]
AMINO_ACIDS = set("ACDEFGHIKLMNPQRSTVWYBZXUOJ*-")
END = "<end>"  # a symbol of its own
TEXTS, FASTA = (".txt", ".text", ".md"), (".fa", ".fasta", ".fna", ".faa")


def pieces_of(path: Path, form: str, symbols: Symbols, mark: str = "") -> tuple[dict[str, Any], list[str]]:
    """The names of its columns (SMILES) and the sequences of a file; bytes as the characters of the same number."""
    if form == "text":
        text = read_bytes(path).decode("latin-1") if symbols == "bytes" else read_text(path)
        return {}, [text.rstrip("\r\n") if mark else text]
    return smiles(read_text(path), path) if form == "smiles" else ({}, fasta(read_text(path), path, mark))


def fasta(text: str, path: Path, mark: str = "") -> list[str]:
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


def smiles(text: str, path: Path) -> tuple[dict[str, Any], list[str]]:
    rows = list(csv.reader(io.StringIO(without_blanks(text)), delimiter=separator_of(text)))
    header = [name.strip() for name in rows[0]]
    where = next((i for i, name in enumerate(header) if name.lower() == "smiles"), None)
    if where is None:
        raise BadData(f"{path}: has no column 'smiles' among {header[:8]}")
    short = next((n for n, row in enumerate(rows[1:], 2) if row and len(row) <= where), None)
    if short is not None:
        raise BadData(f"{path}: row {short} has no entry in column '{header[where]}'")
    found = [row[where].strip() for row in rows[1:] if row and row[where].strip()]
    if not found:
        raise BadData(f"{path}: column '{header[where]}' is empty")
    return {"column": header[where], "dropped": ", ".join(header[:where] + header[where + 1 :])}, found


def tokenizers() -> Any:
    try:
        import tokenizers as package
    except ImportError as error:
        raise BadData("a tokenizer file needs the package tokenizers: pip install 'unnoise[all]'") from error
    return package


def tokenizer_json(path: Path) -> str:
    text = read_text(path)
    try:
        tokenizers().Tokenizer.from_str(text)
    except Exception as error:
        raise BadData(f"{path}: is no tokenizer file of the `tokenizers` format ({error})") from error
    return text


def form_of(path: Path) -> str:
    """Molecules in a table, FASTA by its name or its first byte, else text."""
    if suffix_of(path) == ".csv":
        return "smiles"
    return "fasta" if suffix_of(path) in FASTA or read_bytes(path)[:1] == b">" else "text"


def is_smiles_table(path: Path) -> bool:
    """Whether a CSV file is one of molecules: a column `smiles`, and at most one beside it."""
    if suffix_of(path) != ".csv":
        return False
    head = without_blanks(read_bytes(path)[:4096].decode("utf-8-sig", errors="replace"))
    names = [name.strip().lower() for name in next(csv.reader(head.splitlines()[:1], delimiter=separator_of(head)), [])]
    return "smiles" in names and len(names) <= 2
