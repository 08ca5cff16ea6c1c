"""Running the checks: over the library's own families, or over a user's process."""

import importlib
import os
import sys
from collections.abc import Iterator

from unnoise.processes import MatrixChain, Process
from unnoise.tree import map_leaves
from unnoise.verify.bounds import (
    chain_checks,
    estimator_checks,
    fast_path_checks,
    identity_checks,
    inequality_checks,
    variance_checks,
)
from unnoise.verify.families import FAMILIES
from unnoise.verify.kernels import kernel_checks
from unnoise.verify.matrix_chains import matrix_chain_checks, matrix_chain_subject
from unnoise.verify.rows import Row
from unnoise.verify.subjects import Subject, subject_of

POINTS = 10  # data points of a mixture in a quick run; a thorough one takes 50


def checks(subject: Subject, thorough: bool = False) -> Iterator[Row]:
    """Every check that applies to a subject; a thorough run takes 50 points of a mixture and ten wrong networks."""
    if not thorough:
        subject.points = map_leaves(lambda x: x[:POINTS], subject.points)
    if isinstance(subject.process, MatrixChain):
        yield from matrix_chain_checks(subject, 10 if thorough else 2)
        return
    yield from kernel_checks(subject)
    yield from identity_checks(subject)
    yield from fast_path_checks(subject)
    yield from inequality_checks(subject, 10 if thorough else 2)
    yield from chain_checks(subject)
    yield from variance_checks(subject)
    yield from estimator_checks(subject)


def subjects(only: str | None = None, brief: bool = False) -> list[Subject]:
    """The library's own subjects whose name contains `only` (any of several, separated by commas); brief: one a family."""
    if brief:
        return [next(iter(build())) for build in FAMILIES.values()]
    wanted = [part.strip().lower() for part in only.split(",")] if only else [""]
    found = [s for build in FAMILIES.values() for s in build() if any(part in s.name.lower() for part in wanted)]
    if not found:
        names = [s.name for build in FAMILIES.values() for s in build()]
        raise ValueError(f"--only {only!r} matches no process; choose from {', '.join(names)}")
    return found


def load_process(path: str) -> Process:
    """`package.module:name`, where the name is a process, or a class or function that makes one."""
    module_name, _, name = path.partition(":")
    if not name:
        raise ValueError(f"--process {path!r}: write it as package.module:name")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ValueError(f"--process {path!r}: {error}; run from the folder that holds the module") from error
    if not hasattr(module, name):
        raise ValueError(f"--process {path!r}: the module {module_name} has no {name!r}")
    found = getattr(module, name)
    try:
        process = found if isinstance(found, Process) else found() if callable(found) else found
    except TypeError as error:
        raise ValueError(f"--process {path!r} must be callable without arguments: {error}") from error
    if not isinstance(process, Process):
        raise ValueError(f"--process {path!r} is a {type(process).__name__}, not an unnoise Process or a maker of one")
    return process


def user_subject(path: str) -> Subject:
    process = load_process(path)
    return matrix_chain_subject(process, path) if isinstance(process, MatrixChain) else subject_of(process, path)
