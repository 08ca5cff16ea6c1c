"""A table with names, addresses and account numbers, from the file to samples by the commands."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

from unnoise.cli import main


def _table(path: Path) -> dict[str, list[str]]:
    g = np.random.default_rng(0)
    words = ["".join(g.choice(list("abcdefghij"), 6)).title() for _ in range(240)]
    columns = {
        "kunde": [f"K-{v}" for v in g.permutation(90_000)[:120] + 10_000],
        "name": [f"{a} {b}" for a, b in zip(words[:120], words[120:], strict=True)],
        "mail": [f"{word}@mail.example" for word in words[:120]],
        "telefon": [f"+49 30 {v}" for v in g.integers(10**6, 10**7, 120)],
        "konto": [str(v) for v in g.integers(10**9, 10**10, 120)],
        "umsatz": [f"{v:,.2f} €".replace(",", "_").replace(".", ",").replace("_", ".") for v in g.lognormal(6, 1, 120)],
        "seit": [f"{a}.{b}.2019" for a, b in g.integers(1, [29, 13], (120, 2))],
        "art": g.choice(["neu", "alt"], 120).tolist(),
    }
    with path.open("w", newline="", encoding="cp1252") as file:
        csv.writer(file, delimiter=";").writerows([list(columns), *zip(*columns.values(), strict=True)])
    return columns


def _status(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return ended.value.code


def test_nothing_private_leaves_by_the_commands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    columns = _table(Path("kunden.csv"))
    assert _status("train", "kunden.csv", "--dry-run", "--write", "kinds.yaml") == 0
    told = capsys.readouterr().out
    assert "note: the text is not utf-8: read as cp1252" in told and "e-mail addresses; empty in samples" in told
    assert "note: not in the model, made anew in samples: 'kunde'" in told
    train = ["train", "kunden.csv", "--columns", "kinds.yaml", "--steps", "4", "--out", "run", "--device", "cpu", "--json"]
    assert _status(*train) == 0 and _status("sample", "run", "-n", "300", "--steps", "3", "--device", "cpu", "--json") == 0
    with Path("run/samples.csv").open(newline="", encoding="cp1252") as file:
        rows = list(csv.DictReader(file, delimiter=";"))
    assert list(rows[0]) == list(columns) and len(rows) == 300
    kunden = [row["kunde"] for row in rows]
    assert len(set(kunden)) == 300 and all(re.fullmatch(r"K-\d{5}", one) for one in kunden)
    assert not set(kunden) & set(columns["kunde"])
    for name in ("name", "mail", "telefon", "konto"):
        assert {row[name] for row in rows} == {""}
    assert all(re.fullmatch(r"(?:\d{1,3}\.)*\d{1,3},\d\d €", row["umsatz"]) for row in rows)
    assert {row["umsatz"] for row in rows} - set(columns["umsatz"])
    assert all(re.fullmatch(r"[1-9]\d?\.[1-9]\d?\.2019", row["seit"]) for row in rows)
    assert {row["art"] for row in rows} == {"neu", "alt"}
    capsys.readouterr()
    assert _status("train", "kunden.csv", "--dry-run", "--json", "--keep", "name") == 0
    lines = {line["part"]: line for line in json.loads(capsys.readouterr().out)["lines"]}
    assert lines["name"]["kind"] == "category" and lines["mail"]["process"] == "left out"
    assert _status("train", "kunden.csv", "--write", "kinds.yaml") == 2
    assert "--write kinds.yaml goes with --dry-run" in capsys.readouterr().err
