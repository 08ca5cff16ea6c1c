"""Pairs of texts, sequence to sequence: a table of two columns of text, of which one is told and the other modelled.

    source,target           unnoise train pairs.csv --condition source
    abca,zyz                unnoise sample run --given source=abca

The target is a padded sequence of characters like a line of text; the source is told as a sequence of its own
(`data.conditions`), each with its alphabet and the length of its longest.  A file is one of pairs where it has two columns,
one of them is named as the condition, and both are texts of which a table would learn nothing.
"""

import csv
import io
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from unnoise.data.base import BY_BOTH, NO, BadData, Format, Line
from unnoise.data.companions import Companions
from unnoise.data.files import read_bytes, separator_of, suffix_of, without_blanks, write_bytes
from unnoise.data.left_out import LeftOut
from unnoise.data.reading import Reading
from unnoise.data.registry import register_format
from unnoise.data.sequences import Sequences
from unnoise.data.table_files import TextTable, texts_of
from unnoise.data.table_files import read_text as read_table
from unnoise.data.understanding import understand
from unnoise.shapes import AnyState, Int

SUFFIXES = (".csv", ".tsv")


@register_format
@dataclass(kw_only=True)
class Pairs(Sequences):
    """What was understood of the texts that are modelled; `column` is theirs, and `source` that of what is told."""

    kind = "pairs"
    suffixes = ()  # type: ignore[assignment]
    options = {"--length": "sequences", "--noise": "sequences", "--condition": "tables", "--encoding": "tables"}

    source: str = ""
    encoding: str = "utf-8"

    @classmethod
    def recognises(cls, path: Path, how: Reading) -> int:
        asked = len(how.condition) == 1 and how.columns is None and not how.keep
        if not asked or suffix_of(path) not in SUFFIXES:
            return NO
        head = without_blanks(read_bytes(path)[:4096].decode("utf-8-sig", errors="replace"))
        names = next(csv.reader(head.splitlines()[:1], delimiter=separator_of(head)), [])
        if len(names) != 2 or how.condition[0] not in names:
            return NO
        table = read_table(path, how.encoding).table
        texts = {name: texts_of(table[name], name, str(path)) for name in table.column_names}
        found = understand(texts, dict.fromkeys(texts), ())
        return BY_BOTH if all(isinstance(column, LeftOut) for column in found) else NO

    @classmethod
    def taken(cls, path: Path, how: Reading) -> tuple[str, tuple[str, ...]]:
        return "a table of pairs of texts", tuple(cls.options)

    @classmethod
    def read(cls, path: Path, how: Reading) -> tuple["Pairs", Int[Tensor, "rows length"]]:
        if len(how.condition) != 1:
            raise BadData(f"{path}: of a pair of texts one is told: name its column, --condition COLUMN")
        names = read_table(path, how.encoding).table.column_names
        if len(names) != 2 or how.condition[0] not in names:
            raise BadData(f"{path}: a table of pairs has two columns, of which one is --condition; this has {names}")
        if how.length is not None and how.length < 1:
            raise BadData(f"--length {how.length}: a sequence has at least one symbol")
        target = next(name for name in names if name != how.condition[0])
        own = cls(
            form="text", symbols="characters", alphabet=[], length=0, padded=True, noise=how.noise or "masking",
            column=target, source=how.condition[0], encoding=how.encoding,
        )  # fmt: skip
        return own, own._fit_to(own._split_texts(own._texts(path), str(path)), how.length, path)

    def _table(self, path: Path) -> TextTable:
        found = read_table(path, self.encoding)
        if lost := [name for name in (self.column, self.source) if name not in found.table.column_names]:
            raise BadData(f"{path}: lacks the column {lost[0]!r}: it needs {[self.source, self.column]}")
        return found

    def _texts(self, path: Path) -> list[str]:
        return self._table(path).table[self.column].to_pylist()

    def lines(self) -> list[Line]:
        return [replace(super().lines()[0], part=self.column)]

    def encode(self, path: Path) -> Tensor:
        return self.encode_texts(self._texts(path), str(path))

    # what is told

    spells_conditions = True

    def companions(self, path: Path) -> Companions:
        return Companions(self._table(path).table.select([self.source]), {}, False)

    def write_told(self, x: AnyState, beside: Companions, path: Path) -> None:
        self._write({self.source: beside.table[self.source].to_pylist(), self.column: self.texts(x)}, path)  # type: ignore[arg-type]

    # files

    @property
    def suffix(self) -> str:  # type: ignore[override]
        return ".csv"

    def check_out(self, path: Path) -> None:
        Format.check_out(self, path)
        if suffix_of(path) not in SUFFIXES:
            raise BadData(f"{path}: pairs are written as {' or '.join(SUFFIXES)}, gzipped or not: rename it")

    def write(self, x: Tensor, path: Path) -> None:
        self._write({self.column: self.texts(x)}, path)

    def _write(self, columns: dict[str, list[str]], path: Path) -> None:
        stream = io.StringIO(newline="")
        writer = csv.writer(stream, delimiter="\t" if suffix_of(path) == ".tsv" else ",", lineterminator="\n")
        writer.writerows([list(columns), *zip(*columns.values(), strict=True)])
        write_bytes(path, stream.getvalue().encode(self.encoding))

    def gaps(self, path: Path, mark: str | None = None) -> tuple[Tensor, Tensor]:
        return self.gaps_of_texts(self._texts(path), mark, str(path))

    def write_filled(self, x: Int[Tensor, "rows length"], source: Path, path: Path, mark: str | None = None) -> None:
        table = self._table(source).table
        columns = {name: table[name].to_pylist() for name in table.column_names}
        self._write(columns | {self.column: self.filled_texts(x, columns[self.column], mark, str(source))}, path)
