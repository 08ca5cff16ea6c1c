"""Which tests run a line, with how long they take: collected once for a state of src/ and tests/."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutating.sites import Mutant

HERE = Path(__file__).resolve().parents[1]


def digest(root: Path, tests: str) -> str:
    """Of all that a map depends on."""
    found = hashlib.sha256(tests.encode())
    for path in sorted(p for folder in ("src", "tests") for p in (root / folder).rglob("*.py")):
        found.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return found.hexdigest()[:16]


def collect(root: Path, folder: Path, workers: int, options: list[str], seconds: float | None = None) -> bool:
    """Run the tests that the map lacks, within some seconds; whether all have been run."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [str(root / "src"), str(HERE), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "MUTANTS_MAP": str(folder), "PYTHONPATH": os.pathsep.join(p for p in paths if p)}
    spread = ["-n", str(workers), "--dist", "worksteal"] if workers > 1 else []
    command = [sys.executable, "-m", "pytest", "-q", "-p", "mutating.tracing", "-p", "no:cacheprovider", *spread, *options]
    environment["OMP_NUM_THREADS"] = "1"
    try:
        code = subprocess.run(command, cwd=root, env=environment, timeout=seconds).returncode
    except subprocess.TimeoutExpired:
        return False
    if code not in (0, 1, 5):  # passed, some failed (they are left out), none to run
        raise SystemExit(f"pytest stopped with status {code}: {' '.join(command)}")
    (folder / "whole").touch()
    return True


def rows(folder: Path) -> Iterator[dict[str, Any]]:
    """What the tests that were run have written, but for a line that was cut short."""
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_text().splitlines():
            with suppress(json.JSONDecodeError):
                yield json.loads(line)


@dataclass
class Map:
    """Tests by the time they take, and the lines of each."""

    tests: list[tuple[str, float, dict[str, int]]]

    @classmethod
    def read(cls, folder: Path) -> "Map":
        by_time = sorted(rows(folder), key=lambda test: (test["seconds"], test["test"]))
        return cls([(t["test"], t["seconds"], {p: int(bits, 16) for p, bits in t["lines"].items()}) for t in by_time])

    def covering(self, mutant: Mutant) -> list[tuple[str, float]]:
        """The tests that run a mutant, fastest first."""
        first, last = mutant.ran
        wanted = -1 if mutant.imported else (1 << (last + 1)) - (1 << first)
        return [(name, seconds) for name, seconds, lines in self.tests if lines.get(mutant.path, 0) & wanted]
