"""The command: exit status, JSON, filters, a process of one's own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from unnoise.cli import main


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    captured = capsys.readouterr()
    return stop.value.code, captured.out, captured.err


def test_verify_prints_a_table(capsys):
    status, out, _ = run(capsys, "verify", "--only", "uniform/linearbeta")
    assert status == 0
    head = out.splitlines()[0].split()
    assert head == ["process", "prediction", "objective", "quantity", "exact", "ours", "error", "tolerance", "verdict"]
    assert "checks of 1 process in" in out and "0 failed" in out


def test_verify_json_is_a_list_of_rows(capsys):
    status, out, _ = run(capsys, "verify", "--only", "uniform/sizes", "--json")
    rows = json.loads(out)
    assert status == 0 and len(rows) > 50
    keys = {"process", "prediction", "objective", "quantity", "exact", "ours", "error", "tolerance", "verdict"}
    assert all(set(row) == keys and row["verdict"] == "ok" and row["error"] <= row["tolerance"] for row in rows)


def test_a_failed_check_gives_status_1(capsys, monkeypatch):
    from unnoise.schedules import Linear

    monkeypatch.setattr(Linear, "exact_d_alpha", lambda self, t: -1.01 + 0 * t)
    status, out, _ = run(capsys, "verify", "--only", "masking/linear")
    assert status == 1 and "FAIL" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "nothing"], "matches no process; choose from Gaussian/Linear"),
        (["--process", "missing"], "write it as package.module:name"),
        (["--process", "no_such_module:thing"], "No module named"),
        (["--process", "json:dumps2"], "has no 'dumps2'"),
        (["--process", "unnoise.verify.rows:render"], "callable without arguments"),
        (["--process", "math:pi"], "is a float, not an unnoise Process"),
        (["--process", "a:b", "--only", "c"], "either --process or --only"),
        (["--brief", "--only", "c"], "--brief chooses the processes itself"),
    ],
)
def test_bad_input_gives_status_2(capsys, arguments, message):
    status, _, err = run(capsys, "verify", *arguments)
    assert status == 2 and message in err


def test_an_interrupt_is_one_line_and_status_130(capsys, monkeypatch):
    def stop(self):
        raise KeyboardInterrupt

    monkeypatch.setattr("unnoise.cli.Sample.run", stop)
    status, out, err = run(capsys, "sample", "nowhere")
    assert (status, out, err) == (130, "", "unnoise: interrupted\n")


OWN = """
import torch
import unnoise as un

def right():
    return un.Uniform(3, (2,), un.schedules.Polynomial(1.5))

class Wrong(un.Uniform):
    "Its posterior belongs to a slower clock than its transitions."
    def reverse_step(self, x_t, log_theta, s, t):
        return super().reverse_step(x_t, log_theta, s, 0.9 * torch.as_tensor(t) + 0.1 * torch.as_tensor(s))

wrong = Wrong(3, (2,))
large = un.Uniform(50, (20,))
"""


@pytest.mark.parametrize(("name", "status"), [("right", 0), ("wrong", 1), ("large", 2)])
def test_a_process_of_ones_own(tmp_path, name, status):
    (tmp_path / "own.py").write_text(OWN)
    command = [sys.executable, "-m", "unnoise.cli", "verify", "--process", f"own:{name}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == status, done.stdout[-2000:] + done.stderr[-2000:]


def test_demo_writes_a_page(tmp_path, capsys):
    """A glimpse of it: two seconds of training do not beat the baselines, and the exit status says so."""
    out = tmp_path / "deep" / "demo"
    status, printed, _ = run(capsys, "demo", "--out", str(out), "--seconds", "2")
    page = (out / "index.html").read_text()
    assert status in (0, 1) and "index.html" in printed and "fitted Gaussian" in printed
    assert page.count("data:image/png;base64,") == 8 and "Mixed table" in page
    assert (out / "digits-as-numbers" / "config.json").exists()
    status, _, told = run(capsys, "demo", "--out", str(out))
    assert status == 2 and "not empty" in told


def test_importing_unnoise_needs_torch_and_little_else():
    code = (
        "import sys, unnoise; "
        "print([m for m in ('matplotlib','pandas','tyro','accelerate','jaxtyping','scipy','sklearn') if m in sys.modules])"
    )
    blocked = "import sys; sys.modules['jaxtyping'] = None; " + code
    done = subprocess.run([sys.executable, "-c", blocked], capture_output=True, text=True, cwd=Path.home())
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['jaxtyping']"  # blocked above, and not missed


def test_figures_that_json_does_not_have_are_null():
    from unnoise.training.safe_files import strict_json

    inf, nan = float("inf"), float("nan")
    line = strict_json({"bound": inf, "samples": {"utility": nan, "trend": 0.5, "n": [3, -inf]}, "on": "x"})
    assert json.loads(line) == {"bound": None, "samples": {"utility": None, "trend": 0.5, "n": [3, None]}, "on": "x"}
