"""Prompts and gaps of text on the command line: of any length, with the window's length nobody's business."""

import json

import pytest

from unnoise.cli import main
from unnoise.data import Reading, read
from unnoise.training import Run, Trainer
from unnoise.training.recipes import recipe


def command(capsys, *arguments, status=0):
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in arguments])
    captured = capsys.readouterr()
    assert stop.value.code == status, captured.err
    return captured.out if status == 0 else captured.err


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Of windows and of lines; hardly trained."""
    folder = tmp_path_factory.mktemp("text")
    (folder / "a.txt").write_text("the cat sat on the mat.\nthe dog ran.\n" * 40)
    for name, how in (("windows", Reading(length=16)), ("lines", Reading(padded=True))):
        form, x0 = read(folder / "a.txt", how)
        run = Run.create(folder / name, recipe(form, 100, "tiny", steps=2, batch_size=16, panels=0, validate_every=1000))
        Trainer(run, x0).fit()
    return folder


def test_a_prompt_goes_on_for_as_long_as_asked(runs, capsys):
    prompt = "the dog sat on the cat and the mat"
    out = runs / "new.txt"
    told = command(capsys, "sample", runs / "windows", "--prompt", prompt, "-n", 3, "--length", 50, "--out", out, "--json")
    texts = out.read_text().removesuffix("\n")
    assert json.loads(told)["n"] == 3
    assert len(texts) == 3 * (len(prompt) + 50) + 2 * len("\n\n") and texts.count(prompt) == 3
    again = runs / "again.txt"
    options = ("-n", 2, "--length", 50, "--sampler", "FirstHitting", "--out", again)
    shown = command(capsys, "sample", runs / "windows", "--prompt", prompt, *options)
    assert texts.startswith(again.read_text().removesuffix("\n")) and prompt in shown  # the first is shown
    command(capsys, "sample", runs / "windows", "-n", 1, "--length", 90, "--out", out)
    assert len(out.read_text()) == 91


def test_a_prompt_of_a_line(runs, capsys):
    out = runs / "new.txt"
    command(capsys, "sample", runs / "lines", "--prompt", "the d", "-n", 5, "--out", out)
    assert out.read_text().count("the d") >= 5
    assert "end by themselves" in command(capsys, "sample", runs / "lines", "--length", 9, status=2)
    told = command(capsys, "sample", runs / "lines", "--prompt", "the cat " * 9, status=2)
    assert "the prompt has 72 symbols, and the run's sequences have up to 23" in told


def test_what_cannot_be(runs, capsys):
    told = command(capsys, "sample", runs / "windows", "--prompt", "Thé cat", status=2)
    assert told == "unnoise: --prompt holds 'T', 'é', not among the 15 symbols of the model: leave out or replace\n"
    assert "leave it out" in command(capsys, "sample", runs / "windows", "--prompt", "a", "--given", "a=b", status=2)


def test_gaps_of_any_length_are_filled(runs, capsys):
    line = "the cat sat on the mat. the dog ran on the cat on the mat and the dog sat on a mat"
    gaps = "th_ cat sat on " + "_" * 40 + line[55:70] + "__" + line[72:-1] + "_"
    page = "\n".join([gaps, line, "_" * 30, "the d_g"])
    assert len(gaps) == len(line) == 82
    (runs / "gaps.txt").write_text(page + "\n")
    told = command(capsys, "infill", runs / "windows", runs / "gaps.txt", "--out", runs / "full.txt", "--json")
    full = (runs / "full.txt").read_text()
    assert len(full) == len(page) + 1 and all(a in ("_", b) for a, b in zip(page, full, strict=False)) and "_" not in full
    found = json.loads(told)
    assert found["filled"] == page.count("_") == 75 and found["conditioning"] == "exact" and found["rows"] == 1
