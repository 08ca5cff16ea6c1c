"""`python -m unnoise` is the command."""

import runpy
import sys

import pytest


def test_the_package_runs_as_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["unnoise", "train", str(tmp_path / "nowhere.csv")])
    with pytest.raises(SystemExit) as done:
        runpy.run_module("unnoise", run_name="__main__")
    assert done.value.code == 2 and "nowhere.csv: there is no such file" in capsys.readouterr().err
