"""The Triton kernels of a linear head, by Triton's interpreter where Triton is installed (see `interpreted_head.py`)."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import unnoise

PACKAGE = str(Path(unnoise.__file__).parents[1])


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton")
def test_kernels_are_the_plain_passes():
    path = os.pathsep.join([PACKAGE, os.environ.get("PYTHONPATH", "")])
    given = {**os.environ, "PYTHONPATH": path, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("interpreted_head.py"))]
    done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
