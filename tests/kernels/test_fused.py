"""Fused kernels draw what the plain ones do: by Triton's interpreter, where Triton is installed (on a device: test_cuda)."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
def test_fused_kernels_draw_what_plain_ones_do():
    """The numbers are drawn by a fixed seed, and none of them falls so near an edge that rounding decides."""
    source = Path(__file__).parents[2] / "src"
    path = os.pathsep.join([str(source), str(HERE), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, HERE / "interpreted.py"], env=environment, capture_output=True, text=True, timeout=400
    )
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert len(lines) == 19 and all(": 0 of " in line for line in lines), run.stdout
