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

FRAME = pd.DataFrame({"age": np.arange(40) % 23 + 18, "job": ["cook", "clerk"] * 20, "pay": np.arange(40) * 7.25})
ARRAY = np.random.default_rng(0).normal(size=(40, 3))
STRINGS = ["the cat sat", "a dog ran"] * 10
PRICES = [
    f"{v:,.2f} €".translate(str.maketrans(",.", ".,")) for v in np.random.default_rng(1).lognormal(7, 1, 40)
]  # 1.037,05 €


def same_frame(new):
    assert list(new) == list(FRAME) and new.dtypes.equals(FRAME.dtypes)


def same_array(new):
    assert new.dtype == ARRAY.dtype and new.shape[1:] == (3,)


def same_strings(new):
    assert all(isinstance(text, str) and set(text) <= set("".join(STRINGS)) for text in new)


def prices(new):
    assert list(new) == ["item", "price"] and new["price"].dtype == np.float64 and not new["price"].isna().any()


def pictures(new):
    assert new.dtype == np.uint8 and new.shape[1:] == (6, 6)


def written_prices(path):
    """Written as they were, and not copied from the training rows."""
    first, *texts = path.read_text(encoding="utf-8").splitlines()
    assert first == "item;price" and all(re.fullmatch(r"tea;(?:\d{1,3}\.)?\d{1,3},\d\d €", text) for text in texts)
    assert not {text.split(";")[1] for text in texts} & set(PRICES)
    return texts


def written_pictures(folder):
    from PIL import Image

    names = sorted(path.name for path in folder.iterdir())
    assert all(name.endswith(".png") for name in names)
    images = [np.asarray(Image.open(folder / name)) for name in names]
    pictures(np.stack(images))
    return images


def written_frame(read):
    def check(path):
        new = read(path)
        same_frame(new)
        return new

    return check


def written_array(path):
    new = np.load(path)
    same_array(new)
    return new


def written_strings(path):
    lines = path.read_text().splitlines()
    same_strings(lines)
    return lines


# what samples are in Python; the name of a file of them, and what stands in it
SOURCES = {
    "a DataFrame": (same_frame, "made.parquet", written_frame(pd.read_parquet)),
    "an array": (same_array, "made.npy", written_array),
    "a list of strings": (same_strings, "made.txt", written_strings),
    "a CSV with decimal commas and currency": (prices, "made.csv", written_prices),
    "an `.xlsx` file": (same_frame, "made.xlsx", written_frame(pd.read_excel)),
    "a `.jsonl` file": (same_frame, "made.jsonl", written_frame(lambda path: pd.read_json(path, lines=True))),
    "a folder of PNGs": (pictures, "made", written_pictures),
    "a TSV": (same_frame, "made.tsv", written_frame(lambda path: pd.read_csv(path, sep="\t"))),
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
    FRAME.to_excel("people.xlsx", index=False)
    from PIL import Image

    Path("pictures").mkdir()
    for i, image in enumerate(np.random.default_rng(0).integers(0, 256, (20, 6, 6), dtype=np.uint8)):
        Image.fromarray(image).save(f"pictures/{i}.png")


def test_the_page_has_every_source():
    assert list(ROWS) == list(SOURCES)


@pytest.mark.parametrize("name", SOURCES)
def test_two_lines_and_one_command(name, files):
    check, made, written = SOURCES[name]
    first, second, command = ROWS[name]
    names = {"un": un, "frame": FRAME, "array": ARRAY, "strings": STRINGS}
    exec(first.replace("minutes=2", "steps=3, progress=False, device='cpu'"), names)
    exec(second.replace("1000", "6, steps=4"), names)
    assert len(names["new"]) == 6
    check(names["new"])
    assert len(written(names["model"].sample(5, out=f"py-{made}", steps=4))) == 5
    for words in (f"{command.replace('--minutes 2', '--steps 3')} --json", f"sample run -n 6 --steps 4 --out {made}"):
        with pytest.raises(SystemExit) as end:
            main(words.split())
        assert end.value.code == 0
    assert len(written(Path(made))) == 6
