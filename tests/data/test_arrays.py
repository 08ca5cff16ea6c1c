"""Arrays: there and back, and files that are none."""

import json

import numpy as np
import pytest
import torch

from unnoise.data.arrays import Array, idx, is_idx, load
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
    assert out.shape == values.shape
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


def test_idx(tmp_path):
    values = CASES["images"]
    array, x = Array.fit(_saved(tmp_path, values))
    array.write(x, tmp_path / "out-ubyte")
    assert is_idx(tmp_path / "out-ubyte") and np.array_equal(idx((tmp_path / "out-ubyte").read_bytes()), values)
    assert np.array_equal(load(tmp_path / "out-ubyte"), values)


def _saved(folder, values):
    np.save(folder / "a.npy", values)
    return folder / "a.npy"


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
    with pytest.raises(BadData, match="no set of at most"):
        Array.fit(_saved(tmp_path, CASES["vectors"]), categories=True)
    array, _ = Array.fit(_saved(tmp_path, CASES["digits"]))
    with pytest.raises(BadData, match="outside 0 ... 16"):
        array.encode(_saved(tmp_path, CASES["digits"] + 1))
    with pytest.raises(BadData, match="examples have shape"):
        array.encode(_saved(tmp_path, CASES["images"]))
