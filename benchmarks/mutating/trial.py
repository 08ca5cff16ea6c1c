"""One mutant put to its tests, in a process of its own on a copy of the tree.

The process is forked from one that has torch in memory, but nothing of the package.  Tests run fastest first, and the first
failure ends them.  A test that takes ten times its time has failed: a changed loop may not end.  Copies keep their compiled
files: a changed file gets a date of its own, by which Python knows it for new.
"""

import importlib.util
import os
import shutil
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutating.sites import Mutant

HEAVY = ("torch", "numpy", "scipy.stats", "pandas", "accelerate", "beartype", "pytest")  # plugins it must import itself
LEFT = shutil.ignore_patterns(".git", ".venv*", "out", "carry", "__pycache__", "*.egg-info", ".*_cache")
TIMES, LEAST = 10.0, 5.0  # a test may take so many times its time, and so many seconds at least
BROKEN = (3, 4, 5)  # pytest breaks itself, or finds no test
CLOCK = 1_000_000_000  # date of the first change, in seconds


@dataclass
class Outcome:
    verdict: str  # killed, survived, uncovered, or unknown: the tests could not be run
    by: str = ""  # the test that failed
    tests: int = 0  # that were run, of
    covering: int = 0
    seconds: float = 0.0


class Slow(BaseException):
    """A test takes too long."""


class Watch:
    """A plugin that stops slow tests, and says which one failed."""

    def __init__(self, tests: list[tuple[str, float]], out: Path):
        self.seconds, self.out = dict(tests), out

    def pytest_runtest_logstart(self, nodeid: str, location: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, max(LEAST, TIMES * self.seconds.get(nodeid, LEAST)))

    def pytest_runtest_logfinish(self, nodeid: str, location: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.out.write_text(report.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.out.write_text(f"import of {report.nodeid}")


def prepare(root: Path, tree: Path) -> None:
    """A copy of the tree, and what its trials import."""
    shutil.copytree(root, tree, ignore=LEFT)
    text = "".join(path.read_text() for folder in ("src", "tests") for path in (tree / folder).rglob("*.py"))
    for name in HEAVY:
        if name in text and importlib.util.find_spec(name.partition(".")[0]):
            importlib.import_module(name)


def within(tests: list[tuple[str, float]], limit: float) -> list[tuple[str, float]]:
    """As many as take no longer together than the limit, and one at least."""
    total, kept = 0.0, []
    for name, seconds in tests:
        total += seconds
        if kept and total > limit:
            break
        kept.append((name, seconds))
    return kept


def run(tree: Path, tests: list[tuple[str, float]], said: Path) -> int:
    """In the forked process: pytest's status."""
    import pytest

    os.setsid()
    os.chdir(tree)
    quiet = os.open(said.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    sys.path[:] = [str(tree / "src"), *(p for p in sys.path if Path(p) != Path(__file__).resolve().parents[1])]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(tree / "src"), os.environ.get("PYTHONPATH", "")])

    def slow(number: int, frame: object) -> None:
        raise Slow("ten times its time")

    signal.signal(signal.SIGALRM, slow)
    plain = ["-x", "-q", "--no-header", "--tb=line", "-p", "no:cacheprovider", "-p", "no:xdist"]
    return int(pytest.main([*plain, *(name for name, _ in tests)], plugins=[Watch(tests, said)]))


def waited(child: int, limit: float) -> int | None:
    """The status of a process; None where it had to be stopped."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def trial(tree: Path, mutant: Mutant, covering: list[tuple[str, float]], limit: float, number: int) -> Outcome:
    """Whether a test fails; with the text as it was, a control that must survive."""
    if not covering:
        return Outcome("uncovered")
    tests, began, said = within(covering, limit), time.perf_counter(), tree.with_suffix(".said")
    said.write_text("")
    file, source = tree / mutant.path, (tree / mutant.path).read_bytes()
    file.write_bytes(mutant.applied(source))
    os.utime(file, (CLOCK + 2 * number, CLOCK + 2 * number))
    try:
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            status = BROKEN[0]
            try:
                status = run(tree, tests, said)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(status)
        status = waited(child, 2 * limit + 60)
    finally:
        file.write_bytes(source)
        os.utime(file, (CLOCK + 2 * number + 1, CLOCK + 2 * number + 1))
    by = said.read_text() or ("time" if status is None else f"status {status}" if status else "")
    verdict = "survived" if status == 0 else "unknown" if status in BROKEN and not said.read_text() else "killed"
    return Outcome(verdict, by, len(tests), len(covering), round(time.perf_counter() - began, 2))
