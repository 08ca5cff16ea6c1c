"""From a path to a format and its states: every registered format is asked whether the file is one of its own."""

from pathlib import Path

from unnoise.data.arrays import Array
from unnoise.data.base import BadData, Format
from unnoise.data.conditional import Conditional
from unnoise.data.files import read_once
from unnoise.data.folders import files_in
from unnoise.data.images import Images
from unnoise.data.pairs import Pairs
from unnoise.data.reading import Reading, suffix_of
from unnoise.data.registry import FORMATS, format_named
from unnoise.data.sequences import Sequences
from unnoise.data.source_file import SourceFile
from unnoise.data.table import Table
from unnoise.data.table_files import overrides
from unnoise.paths import check_data
from unnoise.shapes import Tree

__all__ = ["Array", "Images", "Pairs", "Reading", "Sequences", "Table", "read", "read_source"]


def read(path: Path, how: Reading | None = None) -> tuple[Format, Tree]:
    """What the file holds, and its states."""
    format, x0, _ = read_source(path, how)
    return format, x0


def read_source(path: Path, how: Reading | None = None) -> tuple[Format, Tree, SourceFile]:
    """What the file holds, its states, and which file it is: all from one reading of it."""
    how, path = how or Reading(), Path(path)
    check_data(path)
    with read_once():
        found = recognised(path, how)
        _refuse_others(found, path, how)
        made = found.read(path, how)
        if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], Format)):
            raise BadData(
                f"{path}: {found.__name__}.read(path, how) returned a {type(made).__name__}: return a pair, the format and "
                f"the states of the file"
            )
        return *with_conditions(*made, path, how), SourceFile.of(path)


def with_conditions(format: Format, x: Tree, path: Path, how: Reading) -> tuple[Format, Tree]:
    """The same with what the network is told beside it, if anything is."""
    if not how.condition:
        return format, x
    kinds, names = overrides(how.columns), format.column_names(path)
    return Conditional.of(format, x, format.companions(path), how, kinds, str(path), names)


def recognised(path: Path, how: Reading) -> type[Format]:
    """The format that is surest of a file, or the one that is named."""
    if how.format is not None:
        return format_named(how.format)
    asked = {kind: format for kind, format in FORMATS.items() if format.folders or not path.is_dir()}
    sure = {kind: format.recognises(path, how) for kind, format in asked.items()}
    most = max(sure.values())
    if not most and path.is_dir():
        raise BadData(f"{path}: {_inside(path)}")
    if not most:
        known = ", ".join(suffix for format in FORMATS.values() for suffix in format.suffixes)
        raise BadData(
            f"{path}: nothing is known of files with the suffix {suffix_of(path)!r}: rename it to one of {known}, name a "
            f"format by --format, or import the module of a format of your own, --load MODULE"
        )
    kinds = [kind for kind, how_sure in sure.items() if how_sure == most]
    if len(kinds) > 1:
        raise BadData(f"{path}: may be of the formats {', '.join(kinds)}: name one by --format")
    return FORMATS[kinds[0]]


def _inside(folder: Path) -> str:
    """What is wrong with a folder of which nothing is known."""
    files = files_in(folder)
    if not files:
        return "is an empty folder: it needs images or Parquet files"
    more = "" if len(files) == 1 else f" and {len(files) - 1} more"
    return f"is a folder of neither images nor Parquet files (it holds {files[0].name}{more}): pass one file"


def _refuse_others(format: type[Format], path: Path, how: Reading) -> None:
    """Options that say nothing of such a file."""
    what, taken = format.taken(path, how)
    for option in how.given():
        if option not in taken:
            others = {other.options[option] for other in FORMATS.values() if option in other.options}
            whom = f"for {' and for '.join(sorted(others))}" if others else "an option of no format"
            raise BadData(f"{option} is {whom}; {path} is {what}: leave it out")
