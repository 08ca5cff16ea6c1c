"""A plugin of pytest that writes, for each test that passes, how long it took and which lines of src/ it ran.

    MUTANTS_MAP=FOLDER python -m pytest -p mutating.tracing ...

One file of JSON lines for each process, {"test", "seconds", "lines": {path: bits}}: bit n of the bits, in hexadecimal, is
line n.  What stands there already is not run again, so that a run that was cut short goes on.  Lines that run while modules
are imported belong to no test.  Python 3.12 and later tell each line once per test (`sys.monitoring`), earlier ones every
time (`sys.settrace`).
"""

import json
import os
import sys
import time
from collections import defaultdict
from pathlib import Path
from types import CodeType, FrameType

import pytest

from mutating.covering import rows

FOLDER, SOURCE = Path(os.environ["MUTANTS_MAP"]), str(Path.cwd() / "src") + os.sep


class Lines:
    """The lines of src/ that run between `start` and `stop`."""

    def __init__(self) -> None:
        self.seen: dict[str, set[int]] = defaultdict(set)
        self.named: dict[CodeType, str | None] = {}

    def path(self, code: CodeType) -> str | None:
        """From the root; None for files elsewhere."""
        if code not in self.named:
            name = os.path.abspath(code.co_filename)
            self.named[code] = "src/" + name[len(SOURCE) :].replace(os.sep, "/") if name.startswith(SOURCE) else None
        return self.named[code]

    def run(self, code: CodeType, line: int) -> None:
        path = self.path(code)
        if path is not None and code.co_name != "<module>":
            self.seen[path].add(line)

    def bits(self) -> dict[str, str]:
        return {path: f"{sum(1 << line for line in lines):x}" for path, lines in self.seen.items()}


class Monitored(Lines):
    def __init__(self) -> None:
        super().__init__()
        self.monitoring = sys.monitoring  # type: ignore[attr-defined]
        self.tool = self.monitoring.COVERAGE_ID
        self.monitoring.use_tool_id(self.tool, "mutants")
        self.monitoring.register_callback(self.tool, self.monitoring.events.LINE, self.told)

    def told(self, code: CodeType, line: int) -> object:
        self.run(code, line)
        return self.monitoring.DISABLE

    def start(self) -> None:
        self.seen.clear()
        self.monitoring.set_events(self.tool, self.monitoring.events.LINE)
        self.monitoring.restart_events()

    def stop(self) -> None:
        self.monitoring.set_events(self.tool, 0)


class Traced(Lines):
    def calls(self, frame: FrameType, event: str, argument: object) -> object:
        return self.lines if self.path(frame.f_code) is not None else None

    def lines(self, frame: FrameType, event: str, argument: object) -> object:
        if event == "line":
            self.run(frame.f_code, frame.f_lineno)
        return self.lines

    def start(self) -> None:
        self.seen.clear()
        sys.settrace(self.calls)  # type: ignore[arg-type]

    def stop(self) -> None:
        sys.settrace(None)


LINES = Monitored() if hasattr(sys, "monitoring") else Traced()
FAILED: set[str] = set()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    before = {row["test"] for row in rows(FOLDER)}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in before])
    items[:] = [item for item in items if item.nodeid not in before]


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item):
    began = time.perf_counter()
    LINES.start()
    yield
    LINES.stop()
    if item.nodeid not in FAILED:
        said = {"test": item.nodeid, "seconds": round(time.perf_counter() - began, 3), "lines": LINES.bits()}
        with (FOLDER / f"{os.environ.get('PYTEST_XDIST_WORKER', 'main')}.jsonl").open("a") as file:
            file.write("\n" + json.dumps(said))  # so that a line that was cut short stands alone


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.outcome != "passed":
        FAILED.add(report.nodeid)
