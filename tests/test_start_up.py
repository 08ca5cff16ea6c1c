"""How long a command takes to start, in parts that add up."""

import subprocess
import sys
from math import nan
from time import perf_counter, sleep

import pytest

from unnoise import start_up
from unnoise.start_up import StartUp, process_age, start_up_of, start_up_words


def test_parts_add_up_to_what_has_passed():
    clock = StartUp(age=2.0)
    began = perf_counter() - 2.0
    clock.mark("import")
    sleep(0.02)
    clock.mark("read")
    clock.mark("read")
    assert clock.parts["import"] >= 2.0 and clock.parts["read"] >= 0.02
    assert sum(clock.parts.values()) == pytest.approx(perf_counter() - began, abs=0.02)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems do not say it")
def test_a_process_knows_its_age():
    code = "import time; time.sleep(0.3); from unnoise.start_up import process_age; print(process_age())"
    began = perf_counter()
    age = float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert 0.28 < age < perf_counter() - began + 0.02 and process_age() > 0.28


def test_the_clock_of_a_process_is_that_of_its_first_command():
    start_up.begin()
    assert perf_counter() - start_up.of_command().last >= process_age() - 0.1
    assert perf_counter() - start_up.of_command().last < 0.1  # a command called from within starts now


def test_what_a_run_tells():
    lines = [{"step": 3, "start_up": {"import": 1.0, "read": 0.25}}, {"step": 5, "loss": 1.0}]
    assert start_up_of(lines) == {"import": 1.0, "read": 0.25}
    assert start_up_words(start_up_of(lines)) == "start-up 1.2 s: import 1.0, read 0.2"
    assert start_up_of([*lines, {"step": 9, "start_up": {"import": 2.0, "read": nan, "x": None}}]) == {"import": 2.0}
    assert start_up_of([{"step": 1}]) == {}
