"""From a path to a format and its states: the file's name and first bytes tell which."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unnoise.data.arrays import Array, is_idx
from unnoise.data.base import BadData, Format
from unnoise.data.files import read_bytes, suffix_of
from unnoise.data.sequences import Sequences, is_smiles_table
from unnoise.data.table import Table
from unnoise.shapes import Tree

FORMATS: dict[str, type[Format]] = {"table": Table, "sequences": Sequences, "array": Array}
TABLES, TEXTS, FASTA, ARRAYS = (
    (".csv", ".tsv", ".parquet"),
    (".txt", ".text", ".md"),
    (".fa", ".fasta", ".fna", ".faa"),
    (".npy", ".npz"),
)


@dataclass(kw_only=True)
class Reading:
    """How to read a file, where its own looks do not say it or say it wrong."""

    length: int | None = None
    """Symbols in a window of text, or in a padded sequence."""

    text: str | None = None
    """Read text as characters or as bytes; the file decides unless told."""

    tokenizer: Path | None = None
    """A tokenizer file (the JSON of the `tokenizers` package) for text."""

    padded: bool | None = None
    """One line or sequence per example, padded to one length, rather than windows of a long text."""

    encoding: str = "utf-8"
    """Of a table's text, such as latin-1."""

    categories: bool = False
    """Take the levels of an array as categories rather than numbers."""

    noise: str | None = None
    """What sequences are noised by: masking, unless told uniform; and levels of an array: ordinal or masking."""

    columns: Path | None = None
    """A YAML file with a kind for columns of a table that were misunderstood: `age: number`, `zip: category`, `id: drop`."""


FORMS = {"table": "a table", "text": "text", "fasta": "a FASTA file", "smiles": "a file of molecules", "array": "an array"}
SEQUENCES = ("text", "fasta", "smiles")
OPTION_FORMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "--length": ("sequences", SEQUENCES),
    "--text": ("text", ("text",)),
    "--tokenizer": ("text and FASTA", ("text", "fasta")),
    "--padded": ("sequences", SEQUENCES),
    "--no-padded": ("text and FASTA", ("text", "fasta")),
    "--encoding": ("tables", ("table",)),
    "--categories": ("arrays", ("array",)),
    "--noise": ("sequences and for levels of arrays", (*SEQUENCES, "array")),
    "--columns": ("tables", ("table",)),
}


def read(path: Path, how: Reading | None = None) -> tuple[Format, Tree]:
    """What the file holds, and its states."""
    how, path = how or Reading(), Path(path)
    if not path.exists():
        raise BadData(f"{path}: there is no such file")
    if path.is_dir():
        raise BadData(f"{path}: is a folder; pass a file")
    return _reader(path, how)()


def _reader(path: Path, how: Reading) -> Callable[[], tuple[Format, Tree]]:
    form = _form(path, how)
    _refuse_others(path, how, form)
    if form == "table":
        return lambda: Table.fit(path, overrides(how.columns), how.encoding)
    if form == "array":
        return lambda: Array.fit(path, how.categories, how.noise)
    if how.text not in (None, "characters", "bytes"):
        raise BadData(f"--text {how.text}: choose characters or bytes")
    symbols: Any = how.text
    padded = True if form == "smiles" else how.padded
    return lambda: Sequences.fit(path, form, how.length, symbols, how.tokenizer, padded, how.noise or "masking")


def _form(path: Path, how: Reading) -> str:
    suffix = suffix_of(path)
    if suffix in TABLES:
        return "smiles" if how.columns is None and is_smiles_table(path) else "table"
    if suffix in ARRAYS or (suffix not in (*TEXTS, *FASTA) and is_idx(path)):
        return "array"
    if suffix in FASTA or read_bytes(path)[:1] == b">":
        return "fasta"
    if suffix not in TEXTS:
        known = ", ".join((*TABLES, *TEXTS, *FASTA, *ARRAYS))
        raise BadData(f"{path}: nothing is known of files with the suffix {suffix!r}: rename it to one of {known}")
    return "text"


def _refuse_others(path: Path, how: Reading, form: str) -> None:
    """Options that say nothing of such a file."""
    given = {
        "--length": how.length is not None,
        "--text": how.text is not None,
        "--tokenizer": how.tokenizer is not None,
        "--padded": how.padded is True,
        "--no-padded": how.padded is False,
        "--encoding": how.encoding.lower() not in ("utf-8", "utf8"),
        "--categories": how.categories,
        "--noise": how.noise is not None,
        "--columns": how.columns is not None,
    }
    for option, (kind, forms) in OPTION_FORMS.items():
        if given[option] and form not in forms:
            raise BadData(f"{option} is for {kind}; {path} is {FORMS[form]}: leave it out")


def overrides(path: Path | None) -> dict[str, Any] | None:
    """The kinds of columns that a YAML file names."""
    if path is None:
        return None
    try:
        import yaml
    except ImportError as error:
        raise BadData("a YAML file needs the package pyyaml: pip install 'unnoise[data]'") from error
    try:
        data = yaml.load(read_bytes(path), yaml.BaseLoader)  # every value as it is written: no, 01000
    except yaml.YAMLError as error:
        raise BadData(f"{path}: is no YAML ({' '.join(str(error).split())})") from error
    if not isinstance(data, dict):
        raise BadData(f"{path}: expected lines such as `age: number`")
    return data


def format_of(data: dict[str, Any]) -> Format:
    """A format from the JSON it was saved as: {"kind": ..., **its own}."""
    data = dict(data)
    kind = data.pop("kind", None)
    if kind not in FORMATS:
        raise BadData(f"there is no format {kind!r}: a run may name {', '.join(FORMATS)}")
    return FORMATS[kind].from_json(data)
