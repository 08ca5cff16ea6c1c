"""Processes of finite speed: their paths, the reverse under the exact marginals, and the bound of the paths.

    operators   the identities of `verify.generators`, at states of drawn paths
    Dynkin      E phi(z_1) - E phi(z_0) = int E L phi dt along drawn paths, at a random time of each
    marginals   d/dt p_t = L* p_t of the oracle's densities, and its reverse is the generator reversed under them
    bound       with the exact reverse and the law in which paths really end it is -log q(x_0) along every path
    inequality  int exp(-bound) <= 1 for wrong networks, and more than a tenth; in one dimension bound >= -log p with p the
                law of the model's own reverse, by its equation on a grid

A mean over paths in the exponent makes exp(-bound) larger, never smaller, so that an integral that is at most 1 with it is
so without.  Means are told in standard errors: 4 are passed by chance once in 16,000 rows.
"""

from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor

from unnoise.generators import Generator
from unnoise.noise import NoiseSource
from unnoise.objectives import bound
from unnoise.oracles import FlipGrid, KacMixture, Oracle
from unnoise.oracles.flip_grid import PhaseGrid
from unnoise.oracles.flips import FlipMixture
from unnoise.predictions import FlipRatios, Prediction
from unnoise.processes import FiniteSpeed, FlippingVelocity, Kac, ZigZag
from unnoise.verify.generators import Operators, generator_checks, wave
from unnoise.verify.guard import Check, guarded
from unnoise.verify.kac_kernels import kac_kernels
from unnoise.verify.recall import Recalled
from unnoise.verify.rows import Place, Row
from unnoise.verify.subjects import Subject, subject_of
from unnoise.verify.wrong import Perturbed, perturb, with_value

PATHS, ERRORS = 10_000, 4.0
AVERAGED = 16  # paths of a bound that stands in an exponent
STEPS, FAR = 200, 5.0  # of the equation of a wrong network's own law


def reverse_checks(subject: Subject, networks: int = 2) -> Iterator[Row]:
    for t, z in _drawn(subject):
        yield from _reverse(subject, Place(subject.name), z, t)


@guarded("the law that is left as it is")
def resting_checks(subject: Subject, networks: int = 2) -> Iterator[Row]:
    """For processes that forget: L* p = 0 of the prior."""
    process = subject.process
    for t, z in _drawn(subject):
        flow = process.generator(t).adjoint(lambda y: process.prior(len(y), torch.float64).log_prob(y).exp(), z)
        yield Place(subject.name).equal(f"the prior is left as it is: L* p = 0, t={t:g}", 0.0, flow, 1e-12)


def operator_checks(subject: Subject, networks: int = 2) -> Iterator[Row]:
    for t, z in _drawn(subject):
        place = Place(subject.name, "-", f"generator, t = {t:g}")
        yield from generator_checks(Operators(subject.process.generator(t), z), place)


def marginal_checks(subject: Subject, networks: int = 2) -> Iterator[Row]:
    """For oracles in closed form."""
    for t, z in _drawn(subject):
        yield from _marginals(subject, Place(subject.name), z, t)


def path_checks(subject: Subject, networks: int = 2) -> Iterator[Row]:
    place = Place(subject.name)
    yield from _dynkin(subject, place)
    yield from _identity(subject, place)
    yield from _wrong(subject, place, networks)


def _drawn(subject: Subject) -> Iterator[tuple[float, Tensor]]:
    """A few states of paths at two times."""
    process: FiniteSpeed = subject.process  # type: ignore[assignment]
    count = len(subject.points)
    flights = process.flights(cast(Tensor, subject.points), NoiseSource(90, count))
    for t in (0.3, 0.8):
        yield t, process.at(flights, torch.full((count,), t, dtype=torch.float64))[:6]


@guarded("equations of the marginals")
def _marginals(subject: Subject, place: Place, z: Tensor, t: float) -> Iterator[Row]:
    process, oracle = subject.process, subject.oracle
    clock = torch.full((len(z),), t, dtype=torch.float64, requires_grad=True)
    with torch.enable_grad():
        log_p = oracle.log_marginal(z, clock)
        slope = torch.autograd.grad(log_p.sum(), clock)[0]
    flow = process.generator(t).adjoint(lambda y: oracle.log_marginal(y, t).exp(), z)
    yield place.equal(f"forward equation of the marginals, t={t:g}", slope, flow / log_p.detach().exp(), 1e-7)


@guarded("reverse of the exact denoiser")
def _reverse(subject: Subject, place: Place, z: Tensor, t: float) -> Iterator[Row]:
    process, oracle = subject.process, subject.oracle
    exact = process.generator(t).reversed(lambda y: oracle.log_marginal(y, t))
    own = Generator(process.state_space, lambda y: oracle(y, t).local())
    for j in range(3):
        quantity = f"reverse generator = reversed generator, on function {j}, t={t:g}"
        yield place.equal(quantity, exact.act(wave(j), z), own.act(wave(j), z), 1e-7)


@guarded("Dynkin's formula")
def _dynkin(subject: Subject, place: Place) -> Iterator[Row]:
    process: FiniteSpeed = subject.process  # type: ignore[assignment]
    noise = NoiseSource(91, PATHS)
    flights = process.flights(cast(Tensor, subject.oracle.draw(noise.at("data"))), noise.at("path"))
    t = noise.at("time").uniform()
    z, begin = process.at(flights, t), flights.states[:, 0]
    for j in range(3):
        phi = wave(j)
        gap = phi(flights.end) - phi(begin) - process.generator(0.5).act(phi, z)
        error = gap.std() / PATHS**0.5
        yield place.row(
            f"Dynkin's formula, function {j}, in standard errors", 0.0, gap.mean(), gap.mean().abs() / error, ERRORS
        )


@guarded("bound of a path with the exact model")
def _identity(subject: Subject, place: Place) -> Iterator[Row]:
    truth = cast(FlipMixture, cast(Recalled, subject.oracle).oracle).ending_exactly()
    x0 = subject.points
    exact, ours = -truth.log_prob(x0), bound(truth, x0, seed=0).total
    yield place.equal("bound(x) along a path with the exact model", exact, ours, truth.accuracy)


@guarded("bounds of wrong networks")
def _wrong(subject: Subject, place: Place, networks: int) -> Iterator[Row]:
    if subject.process.space.dimension > 1:
        yield place.unchecked("bounds of wrong networks", "an integral over several coordinates takes too long here")
        return
    process, oracle = cast(FlippingVelocity, subject.process), cast(Oracle, subject.oracle)
    places = PhaseGrid.within(process, STEPS, FAR)
    every = max(1, round(0.3 / places.gap))
    x = places.x[places.half % every :: every]
    many = x.repeat_interleave(AVERAGED).reshape(-1, *process.space.shape)
    for i in range(networks):
        scale = 0.1 if i < networks / 2 else 1.5
        model, which = Perturbed(oracle, scale, 100 + i), f"noise {scale:g}, network {i}"
        bounds = bound(model, many, seed=i).total.reshape(len(x), AVERAGED)
        mass = (-bounds.mean(1)).exp().sum() * every * places.gap
        yield place.at_most(f"integral of exp(-bound) <= 1, {which}", 1.0, mass)
        if scale < 1:
            yield place.at_most(f"integral of exp(-bound) > 0.1, {which}", mass, 0.1)
        own = places.backward(model)[places.half % every :: every]
        seen = own > 1e-4  # farther out the grid's errors of -log p are as large as what is asked
        limit = bounds.mean(1) + ERRORS * bounds.std(1) / AVERAGED**0.5
        quantity = f"-log p of the model's own reverse <= bound, {which}"
        yield place.at_most(quantity, limit[seen], -own[seen].log(), 1e-3)


@perturb.register
def _(prediction: FlipRatios, model: Perturbed, x_t: Tensor, source: NoiseSource) -> Prediction:
    phase, value = source.at("phase").uniform().item() * 6, prediction.value
    clock = cast(Tensor, prediction.t).reshape(-1, *[1] * (value.ndim - 1))
    wave = torch.sin(2 * x_t[:, 0] + x_t[:, 1] + 3 * clock + phase)
    return with_value(prediction, value + model.scale * wave)


@subject_of.register
def kac_subject(process: Kac, name: str) -> Subject:
    return flip_subject(
        KacMixture, process, name, (kac_kernels, operator_checks, marginal_checks, reverse_checks, path_checks)
    )


@subject_of.register
def zigzag_subject(process: ZigZag, name: str) -> Subject:
    return flip_subject(FlipGrid, process, name, (resting_checks, operator_checks, reverse_checks, path_checks))


def flip_subject(oracle: type[FlipMixture], process: FlippingVelocity, name: str, checks: tuple[Check, ...]) -> Subject:
    """Two humps of data under the process, with a cap that no ratio meets."""
    uncapped = cast(FlippingVelocity, process.with_cap(1e6))
    shape = process.space.shape
    means = torch.tensor([-1.0, 1.0]).reshape(2, *[1] * len(shape)).expand(2, *shape)
    stds = torch.tensor([0.5, 0.4]).reshape(2, *[1] * len(shape)).expand(2, *shape)
    truth = oracle(uncapped, torch.tensor([0.4, 0.6]), means, stds)
    return Subject(name, uncapped, truth, (FlipRatios,), None, truth.draw(NoiseSource(1, 20)), checks=checks)
