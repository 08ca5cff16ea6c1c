"""Arrays: there and back, and files that are none."""

import importlib.util
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from unnoise.data.array_files import IDX_TYPES, idx, is_idx, load
from unnoise.data.arrays import Array
from unnoise.data.base import BadData
from unnoise.processes import Masking

RNG = np.random.default_rng(0)
CASES = {
    "vectors": RNG.normal(3.0, [0.1, 5.0, 1.0], size=(50, 3)),
    "images": RNG.integers(0, 256, size=(20, 6, 5), dtype=np.uint8),
    "digits": RNG.integers(0, 17, size=(20, 8, 8)).astype(np.int64),
    "colours": RNG.integers(0, 256, size=(10, 4, 4, 3), dtype=np.uint8),
    "channels first": RNG.integers(0, 256, size=(10, 3, 4, 4), dtype=np.uint8),
    "single": RNG.normal(size=(40,)).astype(np.float32),
    "bits": RNG.integers(0, 2, size=(30, 7)).astype(bool),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("suffix", [".npy", ".npz", ".npy.gz"])
def test_there_and_back(tmp_path, name, suffix):
    values, path = CASES[name], tmp_path / f"a{suffix}"
    plain = tmp_path / f"a{suffix.removesuffix('.gz')}"
    np.savez(plain, values) if suffix == ".npz" else np.save(plain, values)
    if suffix.endswith(".gz"):
        import gzip

        path.write_bytes(gzip.compress(plain.read_bytes()))
    array, x = Array.fit(path)
    again = Array.from_json(json.loads(json.dumps(array.to_json())))
    assert torch.equal(again.encode(path), x)
    out = again.values(x)
    assert out.shape == values.shape and out.dtype == values.dtype
    np.testing.assert_allclose(out.astype(float), values.astype(float), atol=0 if array.levels else 1e-5)
    assert tuple(x.shape[1:]) == again.process().space.shape and x.dtype == torch.float32
    if array.levels:
        assert float(x.abs().max()) < 1
    else:
        assert abs(float(x.mean())) < 0.01 and abs(float(x.std()) - 1) < 0.05


@pytest.mark.parametrize("name", ["images", "digits", "bits"])
def test_levels_as_categories(tmp_path, name):
    np.save(tmp_path / "a.npy", CASES[name])
    array, x = Array.fit(tmp_path / "a.npy", categories=True)
    assert x.dtype == torch.int64 and np.array_equal(array.values(x).astype(int), CASES[name].astype(int))
    assert array.process().space.size == array.levels


def test_the_noise_of_levels(tmp_path):
    """Steps to neighbours unless there are two levels only, or masking is asked for; what fits nothing is named."""
    path = _saved(tmp_path, CASES["images"])
    ordinal, _ = Array.fit(path, categories=True)
    assert ordinal.noise == "ordinal" and "neighbouring" in ordinal.lines()[0].process
    kept = Array.from_json(ordinal.to_json()).process()
    x = torch.full((1, *ordinal.shape), 100)
    law = kept.marginal(x, 0.05).probs[0, 0, 0]
    near = (torch.arange(len(law)) - 100).abs() <= 30  # 0.9 sqrt(gamma) of a half-width of 128, gamma = (0.05 pi/2)^2/2
    assert float(law[near].sum()) > 0.99 and float(law[~near].sum()) > 0
    masked, _ = Array.fit(path, categories=True, noise="masking")
    assert isinstance(masked.process(), Masking)
    bits, _ = Array.fit(_saved(tmp_path, CASES["bits"]), categories=True)
    assert bits.noise == "masking"
    for options, message in (
        ({"categories": True, "noise": "uniform"}, "noised by ordinal or masking"),
        ({"noise": "ordinal"}, "numbers have Gaussian noise"),
    ):
        with pytest.raises(BadData, match=message):
            Array.fit(path, **options)
    with pytest.raises(BadData, match="one level only"):
        Array.fit(_saved(tmp_path, np.zeros((3, 4, 4), np.uint8)), categories=True, noise="ordinal")


def test_levels_keep_their_place_in_their_bin(tmp_path):
    """A number anywhere in the bin comes back as its level."""
    np.save(tmp_path / "a.npy", CASES["images"])
    array, x = Array.fit(tmp_path / "a.npy")
    for shift in (-0.49, 0.49):
        assert np.array_equal(array.values(x.double() + shift * array.width), CASES["images"])


@pytest.mark.parametrize("dtype", ["int16", "uint16", "int32", "int64", "uint64"])
def test_many_integers_come_back_whole_and_within_their_type(tmp_path, dtype):
    values = RNG.integers(0, 1000, (500, 4)).astype(dtype)
    array, x = Array.fit(_saved(tmp_path, values))
    assert array.levels == 0 and np.array_equal(array.values(x), values) and array.values(x).dtype == dtype
    array.span = None  # as in a run that knows no range
    off = array.values(x + 0.6 / torch.tensor(array.scale))
    assert np.array_equal(off, values + 1)  # the nearest, not the next below
    limits = np.iinfo(dtype)
    ends = array.values(torch.tensor([[-1e30] * 4, [1e30] * 4]))
    assert (ends[0] == limits.min).all() and (ends[1] >= limits.max - 2047).all()  # float64 has no 2^64 - 1


def test_what_is_known_stays_to_the_last_digit(tmp_path):
    """States are float32; entries that are no gaps are not drawn, and are written as they were read."""
    long = RNG.integers(0, 10**12, (30, 2))
    for values, mark, gap in ((long, "-1", -1), (RNG.normal(size=(30, 2)) * 1e6, None, np.nan)):
        array, x = Array.fit(_saved(tmp_path, values))
        assert not np.array_equal(array.values(x), values)
        holes = values.copy()
        holes[3, 1] = holes[7, 0] = gap
        _, fixed = array.gaps(_saved(tmp_path, holes), mark)
        assert (~fixed).nonzero().tolist() == [[3, 1], [7, 0]]
        array.write_filled(torch.zeros(30, 2), tmp_path / "a.npy", tmp_path / "full.npy", mark)
        full, known = np.load(tmp_path / "full.npy"), fixed.numpy()
        assert full.dtype == values.dtype and np.array_equal(full[known], values[known])
        np.testing.assert_allclose(full[~known], np.array(array.mean)[[1, 0]], rtol=1e-9)
    colours = CASES["colours"]
    array, x = Array.fit(_saved(tmp_path, colours))
    array.write_filled(x, _saved(tmp_path, np.where(colours < 9, np.nan, colours)), tmp_path / "full.npy")
    assert np.array_equal(np.load(tmp_path / "full.npy"), colours)


@pytest.mark.parametrize(
    "values, kind",
    [
        (np.arange(6) % 3, ">u1"),
        (np.arange(6) - 3, ">i1"),
        (np.arange(6) * 50, ">u1"),
        (np.arange(6) * 100, ">i2"),
        (np.arange(6).astype(np.uint16) * 10_000, ">i4"),
        (np.arange(6).astype(np.int32), ">i4"),
        (np.linspace(0, 1, 6, dtype=np.float16), ">f4"),
    ],
)
def test_idx_has_a_type_for_numbers_of_other_types(tmp_path, values, kind):
    array, x = Array.fit(_saved(tmp_path, values.reshape(3, 2)))
    array.write(x, tmp_path / "out.idx")
    content = (tmp_path / "out.idx").read_bytes()
    assert content[2] == next(code for code, name in IDX_TYPES.items() if name == kind)
    assert len(content) == 4 + 2 * 4 + 6 * np.dtype(kind).itemsize
    assert np.array_equal(idx(content), array.values(x)) and np.array_equal(idx(content).ravel(), values)


def test_idx(tmp_path):
    values = CASES["images"]
    array, x = Array.fit(_saved(tmp_path, values))
    array.write(x, tmp_path / "out-ubyte")
    assert is_idx(tmp_path / "out-ubyte") and np.array_equal(idx((tmp_path / "out-ubyte").read_bytes()), values)
    assert np.array_equal(load(tmp_path / "out-ubyte"), values)
    array, x = Array.fit(_saved(tmp_path, np.arange(3) * 2**31))
    with pytest.raises(BadData, match=r"no type for -?\d+ \.\.\. 4294967\d+: write them as \.npy"):
        array.write(x, tmp_path / "out-ubyte")


def _saved(folder, values):
    np.save(folder / "a.npy", values)
    return folder / "a.npy"


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_samples_stay_within_the_range_of_the_data(tmp_path, dtype):
    values = (RNG.random((40, 6, 6)) * 1000 / (1 if dtype == "int32" else 1000)).astype(dtype)
    array, x = Array.fit(_saved(tmp_path, values))
    array = Array.from_json(json.loads(json.dumps(array.to_json())))
    out = array.values(3 * x)
    assert out.dtype == dtype and out.min() == values.min() and out.max() == values.max()
    array.write(3 * x, tmp_path / "out.npy")
    assert np.array_equal(np.load(tmp_path / "out.npy"), out)
    wide = array.encode(_saved(tmp_path, values * 2))  # likelihoods know no range
    torch.testing.assert_close(wide, torch.as_tensor((values * 2 - array.mean[0]) / array.scale[0]).float())
    saved = array.to_json()
    del saved["span"]
    assert Array.from_json(saved).values(3 * x).max() > 1.5 * values.max()  # of a run that was saved without


def test_levels_are_whole_numbers(tmp_path):
    images = CASES["colours"]
    array, x = Array.fit(_saved(tmp_path, images))
    assert torch.equal(array.encode(_saved(tmp_path, images.astype(np.float32))), x)
    path = _saved(tmp_path, images / 255)
    for read in (array.encode, array.gaps):
        with pytest.raises(
            BadData, match=r"a\.npy: the entry \[0, 0, 0, \d\] is 0\.\d+, and the levels .* whole numbers 0 \.\.\. 255"
        ):
            read(path)
    for off in (-1, 256, 1e30):
        with pytest.raises(BadData, match=r"outside 0 \.\.\. 255"):
            array.encode(_saved(tmp_path, np.where(images == images.max(), off, images.astype(float))))


def test_masks_are_no_levels(tmp_path):
    array, x = Array.fit(_saved(tmp_path, CASES["digits"]), categories=True, noise="masking")
    x[3, 2, 1] = array.process().mask
    with pytest.raises(BadData, match="some levels are still masked"):
        array.write(x, tmp_path / "out.npy")
    assert not (tmp_path / "out.npy").exists()


def test_an_archive_of_several_arrays(tmp_path):
    images, labels = CASES["images"], RNG.integers(0, 10, 20)
    for name in ("images", "file"):
        np.savez(tmp_path / "a.npz", labels=labels)
        with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive, archive.open(f"{name}.npy", "w") as member:
            np.save(member, images)
        array, x = Array.fit(tmp_path / "a.npz")
        array = Array.from_json(json.loads(json.dumps(array.to_json())))
        assert [(line.part, line.kind) for line in array.lines()] == [
            (f"array {name}, 6 × 5", "numbers"),
            ("array labels", "left out"),
        ]
        array.write(x, tmp_path / "out.npz")
        with np.load(tmp_path / "out.npz") as out:
            assert out.files == [name] and np.array_equal(out[name], images)
    np.savez(tmp_path / "b.npz", images=images[:2], larger=np.zeros((9, 9, 9)))
    array.array = "images"
    assert torch.equal(array.encode(tmp_path / "b.npz"), x[:2])
    saved = {key: value for key, value in array.to_json().items() if key not in ("array", "others")}
    Array.from_json(saved).write(x, tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as out:
        assert out.files == ["samples"]


@pytest.mark.parametrize("name", ["images", "colours", "channels first"])
def test_a_sheet_of_pictures(tmp_path, name):
    image = pytest.importorskip("PIL.Image")
    array, x = Array.fit(_saved(tmp_path, CASES[name]))
    array.write(x[:5], tmp_path / "out.png")
    with image.open(tmp_path / "out.png") as picture:
        pixels = np.asarray(picture)
    enlarge = pixels.shape[1] // (3 * (x.shape[-1] + 1))
    first = CASES[name][0] if name != "channels first" else np.moveaxis(CASES[name][0], 0, -1)
    assert np.array_equal(pixels[::enlarge, ::enlarge][: first.shape[0], : first.shape[1]], first)


@pytest.mark.parametrize(
    "content, words",
    [
        (b"", "empty"),
        (b"\x93NUMPY broken", "no array that can be read"),
        (b"hello world, this is no array", "no array that can be read"),
        (b"\x00\x00\x08\x02\x00\x00\x00\x05\x00\x00\x00\x05abc", "3 numbers for the shape"),
    ],
)
def test_bad_files(tmp_path, content, words):
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(BadData) as error:
        Array.fit(tmp_path / "a.npy")
    assert words in str(error.value) and "\n" not in str(error.value)


def test_a_cut_archive(tmp_path):
    np.savez(tmp_path / "a.npz", CASES["vectors"])
    (tmp_path / "a.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:200])
    with pytest.raises(BadData, match="is no array that can be read"):
        load(tmp_path / "a.npz")


@pytest.mark.parametrize("name", ["s.csv", "s.txt", "s", "s.csv.gz"])
def test_names_that_are_none_of_an_array(tmp_path, name):
    array, x = Array.fit(_saved(tmp_path, CASES["vectors"]))
    with pytest.raises(BadData, match=rf"{name}: an array is written as \.npy, \.npz, \.idx or \.ubyte"):
        array.write(x, tmp_path / name)
    assert not (tmp_path / name).exists()


def test_bad_values(tmp_path):
    values = CASES["vectors"].copy()
    values[7, 1] = np.nan
    with pytest.raises(BadData, match=r"\[7, 1\] is nan"):
        Array.fit(_saved(tmp_path, values))
    with pytest.raises(BadData, match="not numbers"):
        Array.fit(_saved(tmp_path, np.array(["a", "b"])))
    np.save(tmp_path / "o.npy", np.array([{}, 3], dtype=object), allow_pickle=True)
    with pytest.raises(BadData, match="no array that can be read"):
        Array.fit(tmp_path / "o.npy")
    with pytest.raises(BadData, match="complex128: pass real and imaginary parts"):
        Array.fit(_saved(tmp_path, CASES["vectors"] * 1j))
    with pytest.raises(BadData, match="every entry is 7, so there is nothing to learn"):
        Array.fit(_saved(tmp_path, np.full((50, 3), 7, np.uint8)))
    with pytest.raises(BadData, match="no set of at most"):
        Array.fit(_saved(tmp_path, CASES["vectors"]), categories=True)
    array, _ = Array.fit(_saved(tmp_path, CASES["digits"]))
    with pytest.raises(BadData, match="outside 0 ... 16"):
        array.encode(_saved(tmp_path, CASES["digits"] + 1))
    with pytest.raises(BadData, match="examples have shape"):
        array.encode(_saved(tmp_path, CASES["images"]))


def test_the_benchmark_cuts_two_files_of_one_name(tmp_path):
    where = Path(__file__).parents[2] / "benchmarks" / "image_quality.py"
    spec = importlib.util.spec_from_file_location("image_quality", where)
    assert spec is not None and spec.loader is not None
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    short = {}
    for role, value in (("train", 3), ("test", 5)):
        (tmp_path / role).mkdir()
        np.save(tmp_path / role / "images.npy", np.full((20, 2, 2), value, np.uint8))
        short[role] = benchmark.cut(tmp_path / role / "images.npy", 10, tmp_path, role)
    assert [float(load(short[role]).mean()) for role in ("train", "test")] == [3.0, 5.0]
    assert [len(load(short[role])) for role in ("train", "test")] == [10, 10]
