"""Pairs of texts from a file: the target is learned given the source, by the words of a command."""

import csv
import json
import random

import pytest

from unnoise.cli import main
from unnoise.data import BadData, Reading, read
from unnoise.data.pairs import Pairs

LETTERS = "abcd"
SWAPPED = str.maketrans(LETTERS, "zxwy")


def translated(source):
    """Each letter stands for another, and the word is read backwards."""
    return source.translate(SWAPPED)[::-1]


def command(capsys, *arguments, status=0):
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in arguments])
    captured = capsys.readouterr()
    assert stop.value.code == status, captured.err
    return captured.err if status == 2 else captured.out


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Words of three or four letters, each followed by a number of its own so that no word is common."""
    g = random.Random(0)
    words = ["".join(g.choice(LETTERS) for _ in range(g.choice((3, 4)))) for _ in range(1500)]
    with open(tmp_path / "pairs.csv", "w") as file:
        file.write("target,source\n" + "".join(f"{translated(word)},{word}\n" for word in words))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_states_are_those_of_both_texts(here):
    form, x = read(here / "pairs.csv", Reading(format="pairs", condition=("source",)))
    assert isinstance(form.data, Pairs) and form.inputs() == [{"name": "source", "size": 5, "shape": [4], "sequence": True}]
    states, told = form.apart(x)
    with open("pairs.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert form.data.texts(states) == [row["target"] for row in rows]
    assert form.told.texts["source"].texts(told["source"]) == [row["source"] for row in rows]
    again = type(form).from_json(json.loads(json.dumps(form.to_json())))
    assert (
        again.inputs() == form.inputs() and (again.encode(here / "pairs.csv")["told"]["text source"] == told["source"]).all()
    )
    form.write(x, here / "again.csv")
    with open("again.csv", newline="") as file:
        assert [(row["source"], row["target"]) for row in csv.DictReader(file)] == [
            (row["source"], row["target"]) for row in rows
        ]
    with pytest.raises(BadData, match="'abcabc' is longer than the 4 symbols"):
        form.told.given({"source": "abcabc"})
    assert (form.told.nothing()["text source"] == -1).all()


def test_a_file_of_two_free_texts_is_one_of_pairs(here):
    g = random.Random(1)

    def sentence():
        return " ".join("".join(g.choice("abcdefgh") for _ in range(5)) for _ in range(6))

    lines = [f"{sentence()},{sentence()}\n" for _ in range(60)]
    (here / "free.csv").write_text("english,german\n" + "".join(lines))
    form, _ = read(here / "free.csv", Reading(condition=("english",)))
    assert isinstance(form.data, Pairs) and form.data.column == "german"
    (here / "two.csv").write_text("sex,job\n" + "F,nurse\nM,cook\n" * 40)
    form, _ = read(here / "two.csv", Reading(condition=("sex",)))
    assert form.data.kind == "table"


@pytest.mark.conformance
def test_the_target_is_learned_given_the_source(here, capsys):
    words = ("--condition", "source", "--format", "pairs", "--preset", "tiny", "--steps", 500, "--batch-size", 128)
    command(capsys, "train", "pairs.csv", "--out", "run", *words, "--json")
    right = 0
    for source in ("abc", "dcba", "bbd", "cada"):
        command(capsys, "sample", "run", "-n", 20, "--given", f"source={source}", "--out", "out.csv")
        with open("out.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        assert {row["source"] for row in rows} == {source}
        right += sum(row["target"] == translated(source) for row in rows)
    assert right > 0.8 * 80  # by chance 1 in 85 of them
