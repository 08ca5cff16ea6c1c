"""Parquet: a file, or a folder of files as one table, which its folders may divide (`year=2024/part-0.parquet`)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unnoise.data.base import BadData
from unnoise.data.folders import files_in, refuse_strangers
from unnoise.data.reading import suffix_of
from unnoise.data.table_files import arrow_library, check_names, read_parquet
from unnoise.data.table_kinds import Form, register_table_file


def read_parquets(path: Path, options: Mapping[str, Any]) -> tuple[Any, Form]:
    return (_read_folder(path) if path.is_dir() else read_parquet(path)), {"suffix": ".parquet"}


def is_parquet_folder(path: Path) -> bool:
    return any(suffix_of(file) == ".parquet" for file in files_in(path))


def _read_folder(folder: Path) -> Any:
    """The columns of all files; one that a file lacks is missing there.  Rows stand in the order of the files' names."""
    pa = arrow_library()
    import pyarrow.dataset as datasets

    files = files_in(folder)
    refuse_strangers(folder, files, lambda file: suffix_of(file) == ".parquet", "Parquet files")
    for file in files:
        _check(pa, file)
    try:
        names = [str(file) for file in files]
        whole = datasets.dataset(names, format="parquet", partitioning="hive", partition_base_dir=str(folder))
        inside = pa.unify_schemas([fragment.physical_schema for fragment in whole.get_fragments()])
        extra = [field for field in whole.schema if field.name not in inside.names]  # of the folders' names
        schema = pa.schema([*inside, *extra], metadata=inside.metadata)
        table = whole.replace_schema(schema).to_table(use_threads=False)
    except (pa.ArrowException, OSError) as error:
        said = " ".join(str(error).split())
        raise BadData(
            f"{folder}: its files are not of one table ({said}): give each column one type in all of them"
        ) from error
    check_names(table.column_names, folder)
    if table.num_rows == 0:
        raise BadData(f"{folder}: its files have columns but no rows: add rows")
    return table


def _check(pa: Any, file: Path) -> None:
    try:
        pa.parquet.read_schema(file)
    except (pa.ArrowException, OSError) as error:
        raise BadData(f"{file}: is no Parquet file ({str(error).splitlines()[0]}): check the file") from error


def write_parquet(table: Any, form: Form) -> bytes:
    pa = arrow_library()
    sink = pa.BufferOutputStream()
    pa.parquet.write_table(table, sink)
    return bytes(sink.getvalue().to_pybytes())


register_table_file(".parquet", read_parquets, write_parquet)
