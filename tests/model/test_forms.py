"""Data in memory becomes states and comes back: the same type, the same dtypes, the same values."""

import datetime
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from unnoise.data.base import BadData
from unnoise.data.reading import Reading
from unnoise.model import Form, register_form
from unnoise.model.forms import FORMS, form_named, form_of
from unnoise.model.plain import decode, fitted

N = 60
DAYS = pd.date_range("2024-01-01", periods=N, freq="D")


def round_trip(data, kinds=None):
    """Through the states, and through the JSON of the form."""
    form = form_of(data)
    format, x0 = fitted(form.plain(data), Reading(), kinds)
    again = form_named(form.name).from_json(json.loads(json.dumps(form.to_json())))
    return again.back(decode(format, x0))


def holed(values):
    """Every seventh value is missing."""
    return [None if i % 7 == 3 else value for i, value in enumerate(values)]


COLUMNS = {
    "float64": pd.Series(np.round(np.linspace(-3, 9, N) ** 3, 3)),
    "float32": pd.Series(np.linspace(0, 1, N, dtype=np.float32).round(2)),
    "float with NaN": pd.Series(holed(np.linspace(0, 1, N).round(4)), dtype="float64"),
    "int64": pd.Series(np.arange(N) * 1000 - 7),
    "int8": pd.Series(np.arange(N) % 11, dtype="int8"),
    "uint16": pd.Series(np.arange(N) * 1000, dtype="uint16"),
    "Int64": pd.Series(holed(range(N)), dtype="Int64"),
    "UInt8 without gaps": pd.Series(range(0, 3 * N, 3), dtype="UInt8"),
    "Float64": pd.Series(holed(np.arange(N) / 4), dtype="Float64"),
    "bool": pd.Series(np.arange(N) % 3 == 0),
    "boolean": pd.Series(holed(np.arange(N) % 3 == 0), dtype="boolean"),
    "str": pd.Series(["xyz"[i % 3] for i in range(N)]),
    "str with gaps": pd.Series(holed(["xyz"[i % 3] for i in range(N)])),
    "object": pd.Series(["xyz"[i % 3] for i in range(N)], dtype=object),
    "string": pd.Series(holed(["a b"[i % 3] + "!" for i in range(N)]), dtype="string"),
    "category": pd.Series(pd.Categorical(["ab"[i % 2] for i in range(N)], categories=["b", "a", "never"])),
    "category with gaps": pd.Series(pd.Categorical(holed(["ab"[i % 2] for i in range(N)]))),
    "ordered": pd.Series(pd.Categorical(["low", "high"] * (N // 2), categories=["low", "mid", "high"], ordered=True)),
    "category of numbers": pd.Series(pd.Categorical(np.arange(N) % 4 * 10, categories=[30, 20, 10, 0, 99])),
    "datetime64[ns]": pd.Series(DAYS.as_unit("ns")),
    "datetime64[s]": pd.Series(DAYS.as_unit("s")),
    "datetime with gaps": pd.Series(holed(DAYS)),
    "datetime with a zone": pd.Series(DAYS.tz_localize("Europe/Berlin").as_unit("us")),
    "milliseconds": pd.Series(DAYS + pd.to_timedelta(np.arange(N) * 7, unit="ms")),
    "dates": pd.Series([day.date() for day in DAYS], dtype=object),
    "arrow": pd.Series(holed(range(N)), dtype=pd.ArrowDtype(pa.int32())),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_of_pandas(name):
    frame = pd.DataFrame({"it": COLUMNS[name], "beside": np.arange(N) % 2})
    back = round_trip(frame)
    pd.testing.assert_frame_equal(back, frame, check_exact=True)


def test_frames_of_pandas():
    frame = pd.DataFrame(COLUMNS)
    frame.index = range(100, 100 + N)
    frame.columns = [*frame.columns[:-1], 7]  # a name that is no string
    back = round_trip(frame)
    pd.testing.assert_frame_equal(back, frame.reset_index(drop=True), check_exact=True)
    assert back.index.equals(pd.RangeIndex(N))


def test_left_out_columns_of_pandas():
    frame = pd.DataFrame({"id": range(N), "x": np.arange(N) / 7})
    back = round_trip(frame, {"id": "drop"})
    pd.testing.assert_frame_equal(back, frame[["x"]])


@pytest.mark.parametrize("kind", ["int64", "uint8", "Int32", "string"])
def test_identifiers_are_made_anew_in_their_own_type(kind):
    codes = [f"K-{i}" for i in range(1000, 1000 + N)] if kind == "string" else range(N)
    frame = pd.DataFrame({"number": pd.Series(codes, dtype=kind), "x": np.arange(N) / 7})
    back = round_trip(frame)
    assert back.dtypes.equals(frame.dtypes) and back["x"].equals(frame["x"])
    assert back["number"].nunique() == N and not set(back["number"]) & set(frame["number"])


def test_identifiers_that_do_not_fit_their_type():
    frame = pd.DataFrame({"number": np.arange(100, dtype=np.int8), "x": np.arange(100) / 7})
    with pytest.raises(BadData, match="100 new identifiers up to 199 do not fit a column of type int8.*kind drop"):
        round_trip(frame)


def test_tables_of_arrow():
    table = pa.table(
        {
            "small": pa.array(np.arange(N) % 5, pa.int16()),
            "words": pa.array(["xy"[i % 2] for i in range(N)], pa.large_string()),
            "days": pa.array([day.date() for day in DAYS]),
            "coded": pa.array(["xy"[i % 2] for i in range(N)]).dictionary_encode(),
            "hours": pa.array(
                [None if i == 2 else datetime.datetime(2024, 1, 1, i % 24) for i in range(N)], pa.timestamp("ms")
            ),
        }
    ).replace_schema_metadata({"mine": "kept"})
    back = round_trip(table)
    assert back.schema.equals(table.schema, check_metadata=True)
    assert back.to_pydict() == table.to_pydict()


class Handing:
    """What hands out arrow data and is nobody's class."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


def test_anything_that_hands_out_arrow():
    table = pa.table({"x": 3 * np.arange(N), "y": ["ab"[i % 2] for i in range(N)]})
    assert round_trip(Handing(table)).equals(table)


def test_dicts_of_columns():
    columns = {
        "list": [i % 5 for i in range(N)],
        "words": holed(["xyz"[i % 3] for i in range(N)]),
        "numpy": np.linspace(0, 1, N, dtype=np.float32).round(3),
        "texts": np.array(["ab"[i % 2] for i in range(N)]),
        "torch": 3 * torch.arange(N, dtype=torch.int32),
    }
    back = round_trip(columns)
    assert list(back) == list(columns) and back["list"] == columns["list"] and back["words"] == columns["words"]
    assert back["numpy"].dtype == np.float32 and np.array_equal(back["numpy"], columns["numpy"])
    assert back["texts"].tolist() == columns["texts"].tolist() and back["texts"].dtype.kind == "U"
    assert back["torch"].dtype == torch.int32 and torch.equal(back["torch"], columns["torch"])


def test_frames_of_polars():
    polars = pytest.importorskip("polars")
    words = ["uv"[i % 2] for i in range(N)]
    frame = polars.DataFrame(
        {
            "whole": polars.Series(holed(range(N)), dtype=polars.Int16),
            "float": polars.Series((np.arange(N) / 4).tolist(), dtype=polars.Float32),
            "word": words,
            "day": [day.date() for day in DAYS],
            "time": polars.Series([day.to_pydatetime() for day in DAYS], dtype=polars.Datetime("ms")),
            "category": polars.Series(words, dtype=polars.Categorical),
            "enum": polars.Series(words, dtype=polars.Enum(["v", "never", "u"])),
            "truth": holed([i % 3 == 0 for i in range(N)]),
        }
    )
    back = round_trip(frame)
    assert back.schema == frame.schema and back.equals(frame)


def test_datasets_of_hugging_face():
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"x": datasets.Value("float32"), "y": datasets.ClassLabel(names=["no", "yes"])})
    data = datasets.Dataset.from_dict({"x": (np.arange(N) / 4).tolist(), "y": [i % 2 for i in range(N)]}, features=features)
    data = data.select(range(10, N))  # rows that are named by an index
    back = round_trip(data)
    assert type(back) is datasets.Dataset and back.features == features and back.to_dict() == data.to_dict()


def test_datasets_of_one_column_of_strings():
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict({"text": ["a b", "c\nd", ""] * 4})
    back = round_trip(data)
    assert type(back) is datasets.Dataset and back.to_dict() == data.to_dict()


@pytest.mark.parametrize("dtype", ["uint8", "int64", "bool", "int32"])
@pytest.mark.parametrize("shape", [(N,), (N, 3), (N, 4, 4), (N, 3, 5, 5)])
def test_whole_numbers_of_arrays(dtype, shape):
    array = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 9, shape).astype(dtype)
    back = round_trip(array)
    assert back.dtype == array.dtype and np.array_equal(back, array)
    tensor = round_trip(torch.as_tensor(array))
    assert tensor.dtype == torch.as_tensor(array).dtype and torch.equal(tensor, torch.as_tensor(array))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_floats_of_arrays(dtype):
    """States are float32: a float comes back within a few of its last places."""
    array = np.random.default_rng(0).normal(3, 2, (N, 2)).astype(dtype)
    back = round_trip(array)
    assert back.dtype == dtype
    np.testing.assert_allclose(back, array, rtol=1e-3 if dtype == np.float16 else 1e-6)


def test_floats_of_tensors():
    tensor = torch.randn(N, 2, dtype=torch.bfloat16, requires_grad=True)
    back = round_trip(tensor)
    assert back.dtype == torch.bfloat16 and not back.requires_grad
    assert torch.equal(back, tensor.detach())


def test_strings():
    texts = ["the cat", "", "two\nlines", "wörld", "  spaces "] * 3
    assert round_trip(texts) == texts and round_trip(tuple(texts)) == texts


def test_strings_of_many_characters_are_read_as_bytes():
    texts = [chr(0x4E00 + 7 * i) + "é" for i in range(600)]
    form = form_of(texts)
    format, x0 = fitted(form.plain(texts), Reading(), None)
    assert format.symbols == "bytes" and form.back(decode(format, x0)) == texts


def test_one_long_text_is_cut_into_windows():
    text = "to be, or not to be\n" * 40
    form = form_of(text)
    format, x0 = fitted(form.plain(text), Reading(length=50), None)
    assert form.back(decode(format, x0)) == [text[i : i + 50] for i in range(0, len(text), 50)]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (3, "the data is of type int: pass a path, a pandas"),
        (object(), "the data is of type object: pass a path"),
        (pd.Series([1, 2]), "pandas.Series: pass .to_frame()"),
        ([], "the list is empty"),
        (["a", 1], "entry 1 of the list is a int, not a string"),
        ({}, "the data is of type dict"),
        (pd.DataFrame(), "no columns"),
        (pd.DataFrame({"a": []}), "no rows"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "'a' occurs 2 times"),
        (pd.DataFrame({("a", "b"): [1]}), "several levels"),
        (pd.DataFrame({"a": [1, "x", [2]]}), "columns of one type each"),
        ({"a": [1, 2], "b": [1]}, "different lengths, {'a': 2, 'b': 1}"),
    ],
)
def test_what_cannot_be_taken(data, words):
    with pytest.raises(BadData) as error:
        form_of(data)
    assert words in str(error.value) and "\n" not in str(error.value)


def test_a_missing_file_is_no_text():
    with pytest.raises(BadData, match="there is no such file"):
        form_of("no_such.csv").plain("no_such.csv")


def test_arrays_of_strings_are_lists():
    with pytest.raises(BadData, match="pass a list of strings"):
        form_of(np.array(["a"])).plain(np.array(["a"]))


class Celsius:
    def __init__(self, degrees):
        self.degrees = degrees


def test_a_form_of_ones_own():
    class CelsiusForm(Form):
        name = "celsius"

        @classmethod
        def accepts(cls, data):
            return isinstance(data, Celsius)

        def plain(self, data):
            return np.array(data.degrees)

        def back(self, plain):
            return Celsius(plain.tolist())

    register_form(CelsiusForm)
    try:
        assert round_trip(Celsius([1, 2, 3, 2])).degrees == [1, 2, 3, 2]
        with pytest.raises(BadData, match="celsius"):
            form_named("celsius?")
    finally:
        del FORMS["celsius"]
