"""What a command takes from the start: in a process of its own, imports and all."""

import subprocess
import sys
from functools import cache
from time import perf_counter


def seconds_of(*words: str) -> float:
    """Seconds of `python ...` until it has ended; what it says is part of the error where it fails."""
    began = perf_counter()
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
    took = perf_counter() - began
    if done.returncode:
        said = " ".join(done.stderr.split())[-300:]
        raise RuntimeError(f"python {' '.join(words)[:60]} ended with status {done.returncode}: {said}")
    return took


@cache
def import_seconds() -> float:
    """Until Python has started and imported all that drawing and training need."""
    return seconds_of("-c", "import unnoise.cli, unnoise.training.trainer, unnoise.training.drawing")
