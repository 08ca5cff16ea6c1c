"""Help, mistakes and completion: answered before anything heavy is imported."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

HEAVY = ["torch", "numpy", "pandas", "pyarrow", "sklearn", "matplotlib", "safetensors", "accelerate"]
HEAVY += ["torch._dynamo", "torch._inductor", "sympy", "pyarrow.compute", "pyarrow.parquet"]
SAVED = Path(__file__).parents[1] / "training" / "saved_runs"
CODE = f"""
import json, sys
from unnoise.cli import main
try:
    main(sys.argv[1:])
except SystemExit as stop:
    print(json.dumps([stop.code, [name for name in {HEAVY} if name in sys.modules]]), file=sys.stderr)
"""


def asked(folder, *words):
    """(exit status, heavy modules that were imported, what was printed)."""
    done = subprocess.run([sys.executable, "-c", CODE, *words], capture_output=True, text=True, cwd=folder)
    *said, last = done.stderr.strip().splitlines()
    return *json.loads(last), done.stdout + "\n".join(said)


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("--help", 0, "completion"),
        ("train --help", 0, "--minutes"),
        ("train", 2, "which file? unnoise train PATH"),
        ("train nothing.csv", 2, "unnoise: nothing.csv: there is no such file"),
        ("train here.csv --columns kinds.yaml", 2, "unnoise: kinds.yaml: there is no such file"),
        ("train here.csv --steps many", 2, "many"),
        ("train here.csv --set compile", 2, "--set compile: write it as name=value"),
        ("train here.csv --padded --no-padded", 2, "give one of the two"),
        ("train --resume here.csv", 2, "here.csv is not a run"),
        ("train --unheard-of", 2, "unheard-of"),
        ("sample nowhere", 2, "unnoise: nowhere does not exist"),
        ("sample run -n 0", 2, "-n 0: draw at least one sample"),
        ("sample run --given age", 2, "write it as column=value"),
        ("evaluate nowhere", 2, "unnoise: nowhere does not exist"),
        ("evaluate run --data nothing.csv", 2, "nothing.csv: there is no such file"),
        ("infill nowhere here.csv --out full.csv", 2, "unnoise: nowhere does not exist"),
        ("infill run nothing.csv --out full.csv", 2, "nothing.csv: there is no such file"),
        ("verify --brief --only masking", 2, "--brief chooses the processes itself"),
        ("bench --help", 0, "--scaling"),
        ("bench --out nowhere/table.md", 2, "there is no folder nowhere"),
        ("bench --scaling grown.png --only numbers", 2, "give one of the two"),
        ("completion bash", 0, "complete -o default -F _unnoise unnoise"),
    ],
)
def test_what_needs_no_model_imports_no_torch(tmp_path, words, status, said):
    (tmp_path / "here.csv").write_text("a,b\n1,2\n")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("{}")
    found, heavy, printed = asked(tmp_path, *words.split())
    assert (found, heavy) == (status, []), printed
    assert said in printed


def test_the_check_can_fail(tmp_path):
    """A command that reads its file does import torch."""
    (tmp_path / "here.csv").write_text("a,b\n1,2\n")
    _, heavy, _ = asked(tmp_path, "train", "here.csv", "--dry-run")
    assert "torch" in heavy


@pytest.mark.parametrize("name", ["table", "text", "array"])
def test_samples_need_no_compiler_and_nothing_that_trains_or_scores(tmp_path, name):
    out = {"table": "new.csv", "text": "new.txt", "array": "new.npy"}[name]
    words = ["sample", str(SAVED / name), "-n", "2", "--steps", "2", "--out", out]
    status, heavy, printed = asked(tmp_path, *words)
    assert (status, "wrote 2 samples" in printed) == (0, True), printed
    assert set(heavy) <= {"torch", "numpy", "safetensors", "pyarrow"}


def script(shell):
    return subprocess.run([sys.executable, "-m", "unnoise.cli", "completion", shell], capture_output=True, text=True).stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_commands_options_and_files(tmp_path):
    (tmp_path / "people.csv").touch()
    (tmp_path / "unnoise.bash").write_text(script("bash"))
    assert subprocess.run(["bash", "-n", "unnoise.bash"], cwd=tmp_path).returncode == 0
    asks = "source ./unnoise.bash; COMP_WORDS=($1); COMP_CWORD=$2; _unnoise; echo ${COMPREPLY[*]}"

    def completed(line, place):
        done = subprocess.run(["bash", "-c", asks, "-", line, str(place)], cwd=tmp_path, capture_output=True, text=True)
        return done.stdout.split()

    assert completed("unnoise tr", 1) == ["train"]
    assert completed("unnoise train --re", 2) == ["--resume"]
    assert completed("unnoise sample run --gi", 3) == ["--given"]
    assert completed("unnoise completion z", 2) == ["zsh"]
    assert completed("unnoise train peo", 2) == []  # none of its words: by -o default the shell completes the file


def test_the_scripts_of_other_shells_name_the_same_words():
    zsh, fish = script("zsh"), script("fish")
    assert zsh.endswith(script("bash")) and "bashcompinit" in zsh
    assert "__fish_seen_subcommand_from train' -l resume" in fish and "-a 'train sample evaluate infill" in fish


def test_errors_name_the_line_that_the_readme_installs_by():
    root = Path(__file__).parents[2]
    told = {
        line
        for file in (root / "src").rglob("*.py")
        for line in re.findall(r"pip install 'unnoise\[[^']*'", file.read_text())
    }
    assert told == {"pip install 'unnoise[all]'"} and "pip install '.[all]'" in (root / "README.md").read_text()
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras["all"] == ["unnoise[train,data,plot,control]"] and {"train", "data", "plot", "control"} < set(extras)


def test_output_may_be_cut_off():
    command = f"{sys.executable} -m unnoise.cli train --help | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stdout.startswith("usage: unnoise train") and done.stderr == ""
