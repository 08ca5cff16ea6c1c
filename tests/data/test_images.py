"""Images in folders and archives: there and back to the last level, and what is wrong with them in one line."""

import gzip
import io
import json
import shutil
import tarfile
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

from unnoise.cli import main
from unnoise.data import BadData, Reading, read
from unnoise.data.image_files import pictures
from unnoise.data.images import Images
from unnoise.data.read import read_source

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, size=(12, 6, 9), dtype=np.uint8)
COLOURS = RNG.integers(0, 256, size=(12, 8, 8, 3), dtype=np.uint8)


def folder(path, values, suffix=".png"):
    path.mkdir(parents=True)
    for i, picture in enumerate(values):
        Image.fromarray(picture).save(path / f"{i:02d}{suffix}")
    return path


def archive(source, path):
    files = sorted(file for file in source.rglob("*") if file.is_file())
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as out:
            for file in files:
                out.write(file, file.relative_to(source.parent))
    else:
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w") as out:
            for file in files:
                out.add(file, str(file.relative_to(source.parent)))
        path.write_bytes(gzip.compress(raw.getvalue()) if path.suffix in (".gz", ".tgz") else raw.getvalue())
    return path


@pytest.mark.parametrize("values", [GREY, COLOURS], ids=["grey", "colours"])
@pytest.mark.parametrize("form", ["", ".zip", ".tar", ".tar.gz", ".tgz"])
def test_there_and_back(tmp_path, values, form):
    source = folder(tmp_path / "in", values)
    path = archive(source, tmp_path / f"in{form}") if form else source
    made, x, noted = read_source(path)
    made = Images.from_json(json.loads(json.dumps(made.to_json())))
    assert made.suffix == (form or "/") and noted.still_at(path)
    assert torch.equal(made.encode(path), x) and np.array_equal(made.values(x), values)
    assert x.shape == (12, *((3, 8, 8) if values.ndim == 4 else (6, 9)))
    for name in ("out", "out.zip", "out.tar", "out.tar.gz", "out.tgz"):
        made.check_out(tmp_path / name)
        made.write(x, tmp_path / name)
        assert np.array_equal(pictures(tmp_path / name), values)
    made.write(x, tmp_path / "grid.png")
    made.write(x, tmp_path / "all.npy")
    assert np.array_equal(np.load(tmp_path / "all.npy"), values)
    with pytest.raises(BadData, match="out: is a folder with files in it: name a new one, or an archive"):
        made.check_out(tmp_path / "out")
    (line,) = made.lines()
    assert line.part == ("images of 8 × 8, colours" if values.ndim == 4 else "images of 9 × 6, grey")


def test_sizes_and_modes(tmp_path):
    source = folder(tmp_path / "in", GREY)
    Image.fromarray(COLOURS[0]).save(source / "20.jpg")
    with pytest.raises(BadData, match=r"in: 20.jpg has 8x8 pixels, and 00.png 9x6: make them alike, .*--option size=32"):
        read(source)
    with pytest.raises(BadData, match="--option size=a: write it as 32, or as width and height, 48x32"):
        read(source, Reading(options={"size": "a"}))
    form, x = read(source, Reading(options={"size": "5x4"}))
    assert form.array.shape == [4, 5, 3] and x.shape == (13, 3, 4, 5)  # one has colours: all have
    assert "scaled, and cropped around their middle" in form.lines()[0].values
    assert torch.equal(Images.from_json(form.to_json()).encode(source), x)
    grey, _ = read(folder(tmp_path / "square", np.repeat(GREY[:, :2], 8, 1)[:, :, :8]), Reading(options={"size": "4"}))
    assert grey.array.shape == [4, 4]


def test_pictures_of_odd_modes(tmp_path):
    """Transparent ones stand on white, palettes and 16 bits become what they show, and a turned one is put upright."""
    source = tmp_path / "in"
    source.mkdir()
    clear = np.zeros((4, 4, 4), np.uint8)
    clear[:2] = [10, 20, 30, 255]
    Image.fromarray(clear).save(source / "a.png")
    deep = (np.arange(16).reshape(4, 4) * 4369).astype(np.uint16)
    Image.fromarray(deep).save(source / "b.png")
    Image.fromarray(GREY[0, :4, :4]).convert("P").save(source / "c.gif")
    values = pictures(source)
    assert values[0, 0, 0].tolist() == [10, 20, 30] and values[0, 3, 3].tolist() == [255] * 3
    assert np.array_equal(values[1, ..., 0], np.arange(16).reshape(4, 4) * 17)
    assert np.array_equal(values[2, ..., 1], GREY[0, :4, :4])
    turned = Image.fromarray(GREY[0])
    about = turned.getexif()
    about[274] = 6  # the camera was turned
    shutil.rmtree(source)
    source.mkdir()
    turned.save(source / "t.png", exif=about)
    assert np.array_equal(pictures(source)[0], np.rot90(GREY[0], -1))


def test_folders_within(tmp_path):
    folder(tmp_path / "in" / "cat", GREY[:6])
    folder(tmp_path / "in" / "dog", GREY[6:])
    (tmp_path / "in" / ".DS_Store").touch()
    form, x = read(tmp_path / "in")
    assert np.array_equal(form.values(x), GREY)
    line = form.lines()[1]
    assert (line.part, line.kind, line.values) == ("2 folders", "left out", "cat, dog: their names are not read")


def test_what_is_wrong_is_named(tmp_path):
    source = folder(tmp_path / "in", GREY)
    (source / "05.png").write_bytes((source / "05.png").read_bytes()[:60])
    with pytest.raises(BadData, match=r"in: 05.png is no picture that can be read \(.*\): remove it"):
        read(source)
    (source / "05.png").rename(source / "notes.txt")
    with pytest.raises(BadData, match="in: holds notes.txt beside pictures: move what is none of them elsewhere"):
        read(source)
    (source / "notes.txt").unlink()
    form, _ = read(source)
    with pytest.raises(BadData, match="the pictures have 8x8 pixels; the model was trained on 9x6: scale them"):
        form.encode(folder(tmp_path / "other", COLOURS))
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as out:
        out.writestr("a.csv", "v\n1\n")
    with pytest.raises(BadData, match="a.zip: holds no pictures, but a.csv: it needs files that end in .png"):
        read(tmp_path / "a.zip")
    (tmp_path / "b.zip").write_bytes(b"PK no")
    with pytest.raises(BadData, match="b.zip: is no archive that can be read"):
        read(tmp_path / "b.zip")
    with pytest.raises(BadData, match="--length is for .*; .*in is a set of images: leave it out"):
        read(source, Reading(length=3))
    (tmp_path / "t.csv").write_text("v\n1\n")
    with pytest.raises(BadData, match="--noise is for sequences and for the levels of arrays; .*t.csv is a table"):
        read(tmp_path / "t.csv", Reading(noise="masking"))


def command(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return ended.value.code


def test_one_command_after_another(tmp_path, capsys, monkeypatch):
    """Train on a folder, draw into another, fill gaps, and notice that the folder changed."""
    monkeypatch.chdir(tmp_path)
    small = GREY[:, :3, :3]  # small enough for a network of no convolutions
    source = folder(tmp_path / "in", small)
    assert command("train", "in", "--out", "run", "--steps", "2", "--device", "cpu") == 0
    assert "next: unnoise sample run -n 100 --out samples/" in capsys.readouterr().out
    assert command("sample", "run", "-n", "3", "--steps", "2", "--out", "samples/") == 0
    assert sorted(file.name for file in (tmp_path / "samples").iterdir()) == ["001.png", "002.png", "003.png"]
    assert command("sample", "run", "-n", "2", "--steps", "2") == 0
    assert len(list((tmp_path / "run" / "drawn").iterdir())) == 2
    hidden = small[:2].copy()
    hidden[0, :2] = 255
    folder(tmp_path / "gaps", hidden)
    assert command("infill", "run", "gaps", "--mark", "255", "--out", "full.zip", "--steps", "2", "--rounds", "1") == 0
    known = hidden != 255
    assert np.array_equal(pictures(tmp_path / "full.zip")[known], hidden[known])
    capsys.readouterr()
    (source / "00.png").rename(source / "99.png")
    assert command("train", "--resume", "run", "--steps", "3") == 2
    assert "is not the file that run was trained on, as it was then" in capsys.readouterr().err
