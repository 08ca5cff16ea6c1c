"""Tables in memory.  Each form keeps the table without its rows, a template, which knows all types."""

import base64
import sys
from typing import Any

import numpy as np
import torch

from unnoise.data.base import BadData
from unnoise.data.table_files import arrow_library, check_names
from unnoise.model.forms import Form, register_form


def _packed(batch: Any) -> str:
    """A batch of arrow as text."""
    pa = arrow_library()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return base64.b64encode(sink.getvalue().to_pybytes()).decode()


def _without_rows(pa: Any, column: Any) -> Any:
    """No values of a column's type; categories stay."""
    if not pa.types.is_dictionary(column.type):
        return pa.array([], column.type)
    levels = column.unify_dictionaries().chunk(0).dictionary
    return pa.DictionaryArray.from_arrays(pa.array([], column.type.index_type), levels, ordered=column.type.ordered)


def _loaded(module: str, name: str, data: Any) -> bool:
    """Whether the data is of a class of a package that is imported already, as it must be then."""
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(data, kind)


def _as_arrow(make: Any, what: str) -> Any:
    """An arrow table by a function that makes it, or an error in one line."""
    pa = arrow_library()
    try:
        return make(pa)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, ValueError) as error:
        why = " ".join(str(error.args[-1] if error.args else error).split())
        raise BadData(f"{what}: cannot be read as columns of one type each ({why})") from error


class TableForm(Form):
    """Base of the tables: the template is an arrow table without rows, as text."""

    def __init__(self, template: str):
        self.template = template

    def empty(self) -> Any:
        """The template as an arrow table."""
        return arrow_library().ipc.open_stream(base64.b64decode(self.template)).read_all()

    @classmethod
    def of(cls, data: Any) -> "TableForm":
        return cls(cls.template_of(data))

    @classmethod
    def template_of(cls, data: Any) -> str:
        table = cls.arrow(data)
        check_table(table)
        pa = arrow_library()
        return _packed(
            pa.RecordBatch.from_arrays([_without_rows(pa, column) for column in table.columns], schema=table.schema)
        )

    @classmethod
    def arrow(cls, data: Any) -> Any:
        """The data as a pyarrow.Table."""
        raise NotImplementedError

    def plain(self, data: Any) -> Any:
        return self.arrow(data)

    def to_json(self) -> dict[str, Any]:
        return {"template": self.template}


def check_table(table: Any) -> None:
    if not table.num_columns:
        raise BadData("the table has no columns: pass one with at least one column")
    check_names(table.column_names, "the table")
    if not table.num_rows:
        raise BadData("the table has columns but no rows: add rows")


@register_form
class ArrowForm(TableForm):
    """A pyarrow.Table, or whatever else hands out arrow data: its samples are a pyarrow.Table."""

    name = "arrow"

    @classmethod
    def accepts(cls, data: Any) -> bool:
        if isinstance(data, type) or type(data).__name__ == "Series":  # one column is no table
            return False
        return hasattr(data, "__arrow_c_stream__") or hasattr(data, "to_arrow")

    @classmethod
    def arrow(cls, data: Any) -> Any:
        def make(pa: Any) -> Any:
            if isinstance(data, pa.Table):
                return data
            if isinstance(data, pa.RecordBatch):
                return pa.Table.from_batches([data])
            return pa.table(data) if hasattr(data, "__arrow_c_stream__") else data.to_arrow()

        return _as_arrow(make, "the table")

    def back(self, plain: Any) -> Any:
        schema = self.empty().schema
        kept = [schema.field(name) if name in schema.names else plain.schema.field(name) for name in plain.column_names]
        return plain.cast(arrow_library().schema(kept, schema.metadata))


@register_form
class FrameForm(TableForm):
    """A pandas.DataFrame.  Samples have a fresh index; a frame that was filled keeps its own."""

    name = "pandas"

    def __init__(self, template: str, names: list[Any], objects: list[str]):
        super().__init__(template)
        self.names = names  # of the columns, which are no strings perhaps
        self.objects = objects  # columns of dtype object, which arrow does not know

    @classmethod
    def accepts(cls, data: Any) -> bool:
        return _loaded("pandas", "DataFrame", data)

    @classmethod
    def of(cls, data: Any) -> "FrameForm":
        if getattr(data.columns, "nlevels", 1) > 1:
            raise BadData("the table has columns of several levels: flatten their names first")
        names = [name.item() if isinstance(name, np.generic) else name for name in data.columns]
        return cls(cls.template_of(data), names, [str(name) for name, kind in data.dtypes.items() if kind.name == "object"])

    @classmethod
    def arrow(cls, data: Any) -> Any:
        named = data.set_axis([str(name) for name in data.columns], axis=1)
        check_names(list(named.columns), "the table")
        return _as_arrow(lambda pa: pa.Table.from_pandas(named, preserve_index=False), "the table")

    def back(self, plain: Any) -> Any:
        template, frame = self.empty().to_pandas(), plain.to_pandas()
        kinds = {**template.dtypes, **dict.fromkeys(self.objects, object)}
        frame = frame.astype({name: kind for name, kind in kinds.items() if name in frame and frame[name].dtype != kind})
        own = {str(name): name for name in self.names}
        return frame.set_axis([own.get(name, name) for name in frame.columns], axis=1)

    def filled(self, plain: Any, data: Any) -> Any:
        return self.back(plain).set_axis(data.index, axis=0)

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "names": self.names, "objects": self.objects}


@register_form
class PolarsForm(TableForm):
    """A polars.DataFrame."""

    name = "polars"

    @classmethod
    def accepts(cls, data: Any) -> bool:
        return _loaded("polars", "DataFrame", data)

    @classmethod
    def arrow(cls, data: Any) -> Any:
        return data.to_arrow()

    def back(self, plain: Any) -> Any:
        import polars

        schema = polars.from_arrow(self.empty()).schema
        frame = polars.from_arrow(plain.cast(ArrowForm(self.template).back(plain.slice(0, 0)).schema))
        return frame.cast({name: kind for name, kind in schema.items() if name in frame.columns})


@register_form
class DatasetForm(TableForm):
    """A Hugging Face `datasets.Dataset`; its features stand in the template."""

    name = "datasets"

    @classmethod
    def accepts(cls, data: Any) -> bool:
        return _loaded("datasets", "Dataset", data)

    @classmethod
    def arrow(cls, data: Any) -> Any:
        return data.with_format("arrow")[:]

    def back(self, plain: Any) -> Any:
        import datasets

        features = datasets.Features.from_arrow_schema(self.empty().schema)
        own = datasets.Features({name: features[name] for name in plain.column_names})
        return datasets.Dataset.from_dict(plain.to_pydict(), features=own)


@register_form
class DatasetOfTextsForm(Form):
    """A Hugging Face dataset whose one column holds strings: an example each, as in a list."""

    name = "datasets texts"

    def __init__(self, column: str):
        self.column = column

    @classmethod
    def accepts(cls, data: Any) -> bool:
        if not DatasetForm.accepts(data) or len(data.column_names) != 1:
            return False
        return getattr(data.features[data.column_names[0]], "dtype", None) in ("string", "large_string")

    @classmethod
    def of(cls, data: Any) -> "DatasetOfTextsForm":
        return cls(data.column_names[0])

    def plain(self, data: Any) -> list[str]:
        return list(data[data.column_names[0]])

    def back(self, plain: list[str]) -> Any:
        import datasets

        return datasets.Dataset.from_dict({self.column: plain})

    def to_json(self) -> dict[str, Any]:
        return {"column": self.column}


@register_form
class ColumnsForm(TableForm):
    """A dict of columns, each a list, a NumPy array or a torch tensor."""

    name = "columns"

    def __init__(self, template: str, kinds: dict[str, str]):
        super().__init__(template)
        self.kinds = kinds  # "list", "numpy float32", "torch int64" by column

    @classmethod
    def accepts(cls, data: Any) -> bool:
        return isinstance(data, dict) and bool(data)

    @classmethod
    def of(cls, data: dict[Any, Any]) -> "ColumnsForm":
        return cls(cls.template_of(data), {str(name): _kind(column) for name, column in data.items()})

    @classmethod
    def arrow(cls, data: dict[Any, Any]) -> Any:
        lists = {str(name): column.tolist() if isinstance(column, torch.Tensor) else column for name, column in data.items()}
        sizes = {name: len(column) for name, column in lists.items()}
        if len(set(sizes.values())) > 1:
            raise BadData(f"the columns have different lengths, {sizes}: give all as many rows")
        return _as_arrow(
            lambda pa: pa.table({name: pa.array(column, from_pandas=True) for name, column in lists.items()}), "the columns"
        )

    def back(self, plain: Any) -> dict[str, Any]:
        plain = ArrowForm(self.template).back(plain)
        return {name: _column(plain[name], self.kinds.get(name, "list")) for name in plain.column_names}

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "kinds": self.kinds}


def _kind(column: Any) -> str:
    if isinstance(column, torch.Tensor):
        return f"torch {str(column.dtype).removeprefix('torch.')}"
    if isinstance(column, np.ndarray):
        return "numpy str" if column.dtype.kind == "U" else f"numpy {column.dtype}"
    return "list"


def _column(values: Any, kind: str) -> Any:
    library, _, dtype = kind.partition(" ")
    if library == "list":
        return values.to_pylist()
    if library == "torch":
        return torch.tensor(values.to_pylist(), dtype=getattr(torch, dtype))
    return values.to_numpy().astype(dtype)
