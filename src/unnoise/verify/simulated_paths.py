"""A process by its generator alone (`processes.simulated`): the operators at states of its paths, and the paths themselves.

    operators   the identities of `verify.generators`, a quarter and three quarters of the way
    steps       E_P[dQ/dP] = 1 along drawn paths, Q the same generator tilted: exact for the chain of steps, whatever their
                size, if steps are drawn from the law that their density says
    Dynkin      phi(x_T) - phi(x_0) = int L phi dt in the mean, up to O(step): the steps are those of the generator
    prior       -log p(x_T) is finite where paths end, so that the bound is; on a space that can be listed it sums to 1
    marginals   where the process has them: the forward equation of this very generator, the reverse given x_0, and draws

Means over paths are told in standard errors, five of which are passed by chance once in two million runs; Dynkin's formula
is allowed what halving the steps changes, and as much again.
"""

from collections.abc import Iterator
from typing import Any

import torch

from unnoise.generators import Estimate, Generator, Paths, dynkin, log_density_ratio, simulated
from unnoise.generators.kolmogorov import enumerable, states
from unnoise.noise import NoiseSource
from unnoise.processes import Process, Simulated
from unnoise.shapes import Tree
from unnoise.tree import batch_size, map_leaves
from unnoise.verify.generators import Operators, generator_checks, wave
from unnoise.verify.generic_kernels import conditioned, drawn, forward_equation
from unnoise.verify.guard import guarded
from unnoise.verify.rows import Place, Row

PATHS, POINTS, ERRORS = 10_000, 6, 5.0
TILT = 0.3  # the size of log h


def simulated_rows(process: Any, name: str) -> Iterator[Row]:
    place, paths = Place(name), _paths(process)
    for t in (0.25, 0.75):
        some = map_leaves(lambda leaf: leaf[:POINTS], paths.states[round(t * process.steps)])
        yield from generator_checks(Operators(process.generator(t), some), Place(name, "-", f"generator, t = {t:g}"))
    yield from _steps(process, place, paths)
    yield from _dynkin(process, place, paths)
    yield from _prior(process, place, paths)
    if not process.by_paths:
        yield from marginal_rows(process, place, map_leaves(lambda leaf: leaf[:POINTS], paths.states[0]))


def marginal_rows(process: Process, place: Place, x0: Tree) -> Iterator[Row]:
    for t in (0.25, 0.75):
        for check in (forward_equation, conditioned, drawn):
            yield from check(process, place, x0, t)


def _paths(process: Simulated) -> Paths:
    """From draws of the prior: any states will do."""
    start: Tree = process.prior(PATHS).draw(NoiseSource(70, PATHS))
    return process.paths(start, NoiseSource(71, PATHS))


@guarded("density of the steps")
def _steps(process: Simulated, place: Place, paths: Paths) -> Iterator[Row]:
    few = Paths(paths.times[:9], paths.states[:9])  # of many the ratio has no variance to speak of
    other = lambda t: process.generator(t).tilted(wave(5, TILT))  # noqa: E731
    found = Estimate.of((-log_density_ratio(process.generator, other, few)).exp())
    gap = abs(found.mean - 1) / max(found.error, 1e-12)
    yield place.row("E[dQ/dP] = 1 along eight steps, in standard errors", 1.0, found.mean, gap, ERRORS)
    yield place.at_most("the tilted steps are others: spread of dQ/dP > 0", found.error * PATHS**0.5, 1e-6)


@guarded("Dynkin's formula")
def _dynkin(process: Simulated, place: Place, paths: Paths) -> Iterator[Row]:
    twice = torch.linspace(0, 1, 2 * process.steps + 1, dtype=torch.float64).tolist()
    finer = simulated(_generator_of(process), paths.states[0], twice, NoiseSource(72, PATHS))
    for k in range(3):
        phi = lambda x, t, k=k: wave(k)(x)  # noqa: E731
        coarse, fine = (dynkin(process.generator, phi, some) for some in (paths, finer))
        allowed = 2 * abs(coarse.mean - fine.mean) + ERRORS * (coarse.error + 2 * fine.error)
        yield place.row(f"Dynkin's formula, function {k}", 0.0, fine.mean, abs(fine.mean), allowed)


def _generator_of(process: Simulated) -> Any:
    return lambda t: Generator(process.space, lambda x: process.local(x, t))


@guarded("the prior where paths end")
def _prior(process: Simulated, place: Place, paths: Paths) -> Iterator[Row]:
    log_p = process.prior(PATHS).log_prob(paths.states[-1])
    yield place.at_most("-log p(x_T) is finite where paths end", 1e6, -log_p)
    if enumerable(process.space):
        x = states(process.space)
        total = process.prior(batch_size(x)).log_prob(x).double().exp().sum()
        yield place.row("the prior sums to 1 over all states", 1.0, total, abs(float(total) - 1), 1e-6)
