"""Formats from outside: registered once, recognised by what they say of a file, with working answers to all else."""

import warnings
from dataclasses import asdict, dataclass
from importlib.metadata import EntryPoint

import pytest
import torch

import unnoise as un
from unnoise import extensions
from unnoise.data import BY_BOTH, BY_CONTENT, BY_NAME, FORMATS, NO, BadData, Format, Line, Reading, read, register_format
from unnoise.data.files import read_bytes, read_once
from unnoise.data.read import recognised
from unnoise.training.recipes import recipe


def lamps(sure=BY_NAME, kind="lamps"):
    """A format of rows of three bits, as text."""

    @dataclass(kw_only=True)
    class Lamps(Format):
        suffix, suffixes = ".lamps", (".lamps",)
        count: int = 3

        @classmethod
        def recognises(cls, path, how):
            return sure if path.suffix == ".lamps" else NO

        @classmethod
        def read(cls, path, how):
            return cls(), cls().encode(path)

        def lines(self):
            return [Line("lamps", "boolean", "on and off", "Masking")]

        def process(self):
            return un.Masking(2, (self.count,))

        def encode(self, path):
            return torch.tensor([[int(bit) for bit in row] for row in read_bytes(path).decode().split()])

        def write(self, x, path):
            path.write_text("".join("".join(map(str, row)) + "\n" for row in x.tolist()))

        def to_json(self):
            return asdict(self)

        @classmethod
        def from_json(cls, data):
            return cls(**data)

    Lamps.kind = kind
    return Lamps


@pytest.fixture
def registry(monkeypatch):
    """The formats as they are, for the length of a test."""
    kept = dict(FORMATS)
    yield FORMATS
    FORMATS.clear()
    FORMATS.update(kept)


def test_a_name_is_taken_once(registry):
    first = register_format(lamps())
    assert register_format(lamps()) is registry["lamps"] is not first  # the same class, made again
    other = type("Other", (first,), {})
    with pytest.raises(ValueError, match="there is a format 'lamps' already, of .*test_registry: choose another kind"):
        register_format(other)


def test_every_format_of_the_library_is_registered():
    assert {"array", "sequences", "table"} <= set(FORMATS)
    assert all(FORMATS[kind].kind == kind for kind in FORMATS)


def test_the_surest_has_a_file(tmp_path, registry):
    path = tmp_path / "a.lamps"
    path.write_text("011\n101\n" * 4)
    with pytest.raises(BadData, match="nothing is known of files with the suffix '.lamps'.*--format"):
        read(path)
    register_format(lamps())
    form, x = read(path)
    assert form.kind == "lamps" and x.shape == (8, 3)
    register_format(lamps(BY_CONTENT, "weak"))
    assert recognised(path, Reading()).kind == "lamps"
    register_format(lamps(BY_NAME, "twin"))
    with pytest.raises(BadData, match="may be of the formats lamps, twin: name one by --format"):
        read(path)
    assert read(path, Reading(format="twin"))[0].kind == "twin"
    register_format(lamps(BY_BOTH, "sure"))
    assert read(path)[0].kind == "sure"
    with pytest.raises(BadData, match="there is no data format 'lamp': choose from .*--load MODULE"):
        read(path, Reading(format="lamp"))
    assert read(tmp_path / "a.lamps", Reading(format="sequences", padded=True))[0].kind == "sequences"


def test_a_format_has_answers_that_it_does_not_give(tmp_path, registry):
    """What recipes, scores and commands ask, of a format that says only what it must."""
    form = register_format(lamps())()
    config = recipe(form, 400, "tiny", steps=3)
    assert config.train.batch_size == 64 and config.train.weighting == "bound" and config.format["kind"] == "lamps"
    assert recipe(form, 4000, "small", "cuda").train.batch_size == 256
    known = torch.tensor([[True, False, False]])
    assert form.count_gaps(known) == 2 and form.count_gaps({"a": known, "b": ~known}) == 3
    assert form.gap_parts({"": "exact"}, known) == {"lamps": "exact"}
    assert form.gap_parts({"a": "exact"}, {"a": known}) == {"a": "exact"}
    assert form.shown_suffix() == ".lamps" and form.few_rows_remedy() == "add rows" and form.targets() == []
    assert form.blank(known.long(), known).shape == (1, 0) and form.bins is None and not form.dear
    assert form.network_hints() == {} and form.objective_options() == {}
    with pytest.raises(BadData, match="--given names columns of a table, and this run's data is of the kind 'lamps'"):
        form.given({"a": "1"})
    with pytest.raises(BadData, match="gaps in data of the kind 'lamps' cannot be filled yet"):
        form.gaps(tmp_path / "a")
    with pytest.raises(BadData, match=r"Format does not say how it reads a file: it needs `read\(path, how\)`"):
        Format.read(tmp_path / "a", Reading())


def test_a_file_is_read_once_for_all_who_ask(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"one")
    with read_once():
        assert read_bytes(path) == b"one"
        path.write_bytes(b"two")
        assert read_bytes(path) == b"one"
    assert read_bytes(path) == b"two"


class Point(EntryPoint):
    """An entry point of no package."""

    @property
    def dist(self):
        return None


def test_entry_points_are_loaded_once_and_failures_are_named(tmp_path, monkeypatch):
    """One of each group; what fails is named, and the others are loaded all the same."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "extension_good.py").write_text("from unnoise import extensions\nextensions.LOADED.append(1)\n")
    monkeypatch.setattr(extensions, "LOADED", [], raising=False)
    (tmp_path / "extension_bad.py").write_text("1 / 0\n")
    asked = []

    def points(group):
        asked.append(group)
        names = {"unnoise.formats": "extension_bad", "unnoise.networks": "extension_good"}
        return [Point(name="mine", value=names[group], group=group)] if group in names else []

    monkeypatch.setattr(extensions, "entry_points", points)
    extensions.load_installed.cache_clear()
    with pytest.warns(UserWarning, match="offers 'mine' in the group unnoise.formats, and extension_bad cannot be imported"):
        extensions.load_installed()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        extensions.load_installed()
    assert extensions.LOADED == [1] and asked == list(extensions.GROUPS)
    extensions.load_installed.cache_clear()
