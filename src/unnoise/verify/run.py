"""Running the checks: over the library's own families, or over a user's process."""

from collections.abc import Iterator
from copy import copy
from functools import singledispatch

from unnoise.processes import Gaussian, MatrixChain, Process, Superposition
from unnoise.tree import map_leaves
from unnoise.verify.bounds import estimator_checks, fast_path_checks, identity_checks, inequality_checks
from unnoise.verify.chain_bounds import chain_checks
from unnoise.verify.families import FAMILIES
from unnoise.verify.guard import Check
from unnoise.verify.kernels import kernel_checks
from unnoise.verify.load import load
from unnoise.verify.matrix_chains import matrix_chain_checks
from unnoise.verify.recall import Recalled
from unnoise.verify.rows import Row
from unnoise.verify.subjects import Subject
from unnoise.verify.superpositions import superposition_checks
from unnoise.verify.variance_bounds import variance_checks

POINTS = 10  # data points of a mixture in a quick run; a thorough one takes 50
COMMON: tuple[Check, ...] = (kernel_checks, identity_checks, fast_path_checks, inequality_checks, chain_checks)


@singledispatch
def checks_of(process: Process) -> tuple[Check, ...]:
    """The checks that a process is put to, in order, unless its subject names others; open to registration."""
    return (*COMMON, estimator_checks)


@checks_of.register
def _(process: Gaussian) -> tuple[Check, ...]:
    return (*COMMON, variance_checks, estimator_checks)


@checks_of.register
def _(process: Superposition) -> tuple[Check, ...]:
    return (superposition_checks,)


@checks_of.register
def _(process: MatrixChain) -> tuple[Check, ...]:
    return (matrix_chain_checks,)


def checks(subject: Subject, thorough: bool = False) -> Iterator[Row]:
    """Every check that applies to a subject; a thorough run takes 50 points of a mixture and ten wrong networks."""
    subject = copy(subject)
    if not thorough:
        subject.points = map_leaves(lambda x: x[:POINTS], subject.points)
    subject.oracle = Recalled(subject.oracle)
    for check in checks_of(subject.process) if subject.checks is None else subject.checks:
        yield from check(subject, 10 if thorough else 2)


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
    return load(path, "process", Process)
