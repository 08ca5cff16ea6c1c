"""The table of sources in docs/python.md: every row's two lines and its command run, and samples have the data's form."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import unnoise as un
from unnoise.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
ROW = re.compile(r"^\| ([^|]+) \| `(model = [^`]+)`<br>`(new = [^`]+)` \| `unnoise ([^`]+)` \|$", re.MULTILINE)
ROWS = {row[0]: row[1:] for row in ROW.findall(PAGE.read_text(encoding="utf-8"))}
LATER = {"a CSV with decimal commas and currency", "an `.xlsx` file", "a `.jsonl` file", "a folder of PNGs"}  # no reader yet

FRAME = pd.DataFrame({"age": np.arange(40) % 23 + 18, "job": ["cook", "clerk"] * 20, "pay": np.arange(40) * 7.25})
ARRAY = np.random.default_rng(0).normal(size=(40, 3))
STRINGS = ["the cat sat", "a dog ran"] * 10
PRICES = [f"{1000 + 37 * i:,.2f} €".translate(str.maketrans(",.", ".,")) for i in range(40)]  # 1.037,00 €


def same_frame(new):
    assert list(new) == list(FRAME) and new.dtypes.equals(FRAME.dtypes)


def same_array(new):
    assert new.dtype == ARRAY.dtype and new.shape[1:] == (3,)


def same_strings(new):
    assert all(isinstance(text, str) for text in new)


def prices(new):
    """Written as they were, and not copied from the training rows."""
    texts = Path("new.csv").read_text(encoding="utf-8").splitlines()
    assert texts[0] == "item;price" and all(re.fullmatch(r"\w+;[\d.]+,\d\d €", text) for text in texts[1:])
    assert {text.split(";")[1] for text in texts[1:]} - set(PRICES)


def pictures(new):
    assert new.dtype == np.uint8 and new.shape[1:] == (6, 6)


SOURCES = {
    "a DataFrame": (same_frame, ".parquet"),
    "an array": (same_array, ".npy"),
    "a list of strings": (same_strings, ".txt"),
    "a CSV with decimal commas and currency": (prices, ".csv"),
    "an `.xlsx` file": (same_frame, ".xlsx"),
    "a `.jsonl` file": (same_frame, ".jsonl"),
    "a folder of PNGs": (pictures, ".png"),
    "a TSV": (same_frame, ".tsv"),
}


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    FRAME.to_parquet("frame.parquet")
    np.save("array.npy", ARRAY)
    Path("strings.txt").write_text("\n".join(STRINGS) + "\n")
    Path("prices.csv").write_text("item;price\n" + "".join(f"tea;{price}\n" for price in PRICES), encoding="utf-8")
    FRAME.to_csv("people.tsv", sep="\t", index=False)
    Path("people.jsonl").write_text("".join(json.dumps(row) + "\n" for row in FRAME.to_dict("records")))
    try:
        FRAME.to_excel("people.xlsx", index=False)
    except ImportError:
        Path("people.xlsx").write_bytes(b"PK")
    from PIL import Image

    Path("pictures").mkdir()
    for i, image in enumerate(np.random.default_rng(0).integers(0, 256, (20, 6, 6), dtype=np.uint8)):
        Image.fromarray(image).save(f"pictures/{i}.png")


def test_the_page_has_every_source():
    assert list(ROWS) == list(SOURCES)


@pytest.mark.parametrize("name", SOURCES)
def test_two_lines_and_one_command(name, files, request):
    if name in LATER:
        request.applymarker(pytest.mark.xfail(reason="no reader yet", strict=False))
    check, suffix = SOURCES[name]
    first, second, command = ROWS[name]
    names = {"un": un, "frame": FRAME, "array": ARRAY, "strings": STRINGS}
    exec(first.replace("minutes=2", "steps=3, progress=False, device='cpu'"), names)
    exec(second.replace("1000", "6, steps=4"), names)
    if suffix != ".png":
        names["model"].sample(6, out=f"new{suffix}", steps=4)
    assert len(names["new"]) == 6
    check(names["new"])
    for words in (f"{command.replace('--minutes 2', '--steps 3')} --json", f"sample run -n 6 --steps 4 --out made{suffix}"):
        with pytest.raises(SystemExit) as end:
            main(words.split())
        assert end.value.code == 0
    assert Path(f"made{suffix}").exists()
