"""How a file is to be read, where its own looks do not say it."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(kw_only=True)
class Reading:
    """How to read a file, where its own looks do not say it or say it wrong."""

    format: str | None = None
    """The name of a registered format, where the file is not to be recognised by its looks."""

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

    keep: tuple[str, ...] = ()
    """Columns of a table that are modelled though they are identifiers or private."""

    condition: tuple[str, ...] = ()
    """Columns, or what else stands beside the data row by row, that are not modelled: a network is told them."""

    options: dict[str, str] = field(default_factory=dict)
    """Options of the format by name: sheet of a spreadsheet, size of images, axis or space of an array, or those of
    one's own."""

    def given(self) -> list[str]:
        """The options that say something, as they are written on the command line."""
        said = {
            "--length": self.length is not None,
            "--text": self.text is not None,
            "--tokenizer": self.tokenizer is not None,
            "--padded": self.padded is True,
            "--no-padded": self.padded is False,
            "--encoding": self.encoding.lower() not in ("utf-8", "utf8"),
            "--categories": self.categories,
            "--noise": self.noise is not None,
            "--columns": self.columns is not None,
            "--keep": bool(self.keep),
            "--condition": bool(self.condition),
        }
        return [name for name, yes in said.items() if yes] + [f"--option {name}" for name in self.options]


def suffix_of(path: Path) -> str:
    """The suffix that tells the format: that before .gz."""
    suffixes = [s.lower() for s in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes = suffixes[:-1]
    return suffixes[-1] if suffixes else ""
