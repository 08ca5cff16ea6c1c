"""Processes of finite speed: their paths, the reverse under the exact marginals, and the bound of the paths.

    operators   the identities of `verify.generators`, at states of drawn paths
    Dynkin      E phi(z_1) - E phi(z_0) = int E L phi dt along drawn paths, at a random time of each
    marginals   d/dt p_t = L* p_t of the oracle's densities, and its reverse is the generator reversed under them
    bound       with the exact reverse and the law in which paths really end it is -log q(x_0) along every path
    inequality  int exp(-bound) <= 1 for wrong networks, and more than a tenth; of flips in one dimension bound >= -log p
                with p the law of the model's own reverse, by its equation on a grid

The bound of a point is a mean over paths, and exp(-mean) is larger on average by half the variance of that mean, which is
taken off.  Means and integrals of them are told in standard errors: 4 are passed by chance once in 16,000 rows.
"""

from collections.abc import Callable, Iterator
from typing import cast

import torch
from torch import Tensor

from unnoise.generators import Generator
from unnoise.laws import Law
from unnoise.noise import NoiseSource
from unnoise.objectives import bound
from unnoise.oracles import FlipGrid, KacMixture, Oracle, VelocityGrid
from unnoise.oracles.flights import FlightMixture
from unnoise.oracles.flip_grid import PhaseGrid
from unnoise.predictions import FlipRatios, Prediction, VelocityDensity
from unnoise.processes import FiniteSpeed, FlippingVelocity, Kac, RefreshedVelocity, ZigZag
from unnoise.shapes import AnyState, Float
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
    truth = cast(FlightMixture, cast(Recalled, subject.oracle).oracle).ending_exactly()
    x0 = subject.points
    exact, ours = -truth.log_prob(x0), bound(truth, x0, seed=0).total
    yield place.equal("bound(x) along a path with the exact model", exact, ours, truth.accuracy)


@guarded("bounds of wrong networks")
def _wrong(subject: Subject, place: Place, networks: int) -> Iterator[Row]:
    if subject.process.space.dimension > 1:
        yield place.unchecked("bounds of wrong networks", "an integral over several coordinates takes too long here")
        return
    oracle, gap = cast(Oracle, subject.oracle), 8 / 25
    x = torch.arange(-12, 13, dtype=torch.float64) * gap
    for i, model, which in _models(oracle, networks):
        mass, error = integral(_bounds(model, x, i), gap)
        quantity = f"integral of exp(-bound) <= 1, in standard errors above, {which}"
        yield place.row(quantity, 1.0, mass, max(0.0, (mass - 1) / error), ERRORS)
        if not i:
            yield place.at_most(f"integral of exp(-bound) > 0.1, {which}", torch.tensor(mass), 0.1)


def integral(bounds: Float[Tensor, "places paths"], gap: float) -> tuple[float, float]:
    """int exp(-bound) by the trapezoidal rule, and its standard error by the spread of paths.  A place with a path that is
    impossible to the model adds nothing to either."""
    bounds = bounds[bounds.isfinite().all(1)]
    mean, variance = bounds.mean(1), bounds.var(1) / bounds.shape[1]
    each = (-mean).exp()
    mass = (each * (1 - variance / 2).clamp_min(0)).sum() * gap
    return float(mass), float((each.square() * variance).sum().sqrt() * gap)


def _models(oracle: Oracle, networks: int) -> Iterator[tuple[int, Perturbed, str]]:
    """Small errors on the first half of the networks, large ones on the rest."""
    for i in range(networks):
        scale = 0.1 if i < networks / 2 else 1.5
        yield i, Perturbed(oracle, scale, 100 + i), f"noise {scale:g}, network {i}"


def _bounds(model: Perturbed, x: Tensor, seed: int) -> Float[Tensor, "places paths"]:
    many = x.repeat_interleave(AVERAGED).reshape(-1, *cast(FiniteSpeed, model.process).space.shape)
    return bound(model, many, seed=seed).total.reshape(len(x), AVERAGED)


@guarded("the law of a wrong network's own reverse")
def own_law_checks(subject: Subject, networks: int = 2) -> Iterator[Row]:
    """For flips of one coordinate: bound >= -log p with p by the equation of the model's reverse."""
    grid = PhaseGrid.within(cast(FlippingVelocity, subject.process), STEPS, FAR)
    every = max(1, round(0.3 / grid.gap))
    x = grid.x[grid.half % every :: every]
    for i, model, which in _models(cast(Oracle, subject.oracle), networks):
        bounds, own = _bounds(model, x, i), grid.backward(model)[grid.half % every :: every]
        seen = own > 1e-4  # farther out the grid's errors of -log p are as large as what is asked
        limit = bounds.mean(1) + ERRORS * bounds.std(1) / AVERAGED**0.5
        quantity = f"-log p of the model's own reverse <= bound, {which}"
        yield Place(subject.name).at_most(quantity, limit[seen], -own[seen].log(), 1e-3)


class Moved(Law):
    """A law of velocities, each moved by a distance of its row's."""

    def __init__(self, law: Law, distance: Tensor):
        self.law, self.distance = law, distance

    def log_prob(self, x: AnyState) -> Float[Tensor, "batch"]:
        x = cast(Tensor, x)
        return self.law.log_prob(x - self.distance.repeat_interleave(len(x) // len(self.distance), 0))

    def draw(self, noise: NoiseSource) -> Tensor:
        return cast(Tensor, self.law.draw(noise)) + self.distance

    def kl(self, other: Law) -> Float[Tensor, "batch"]:
        raise TypeError("the divergence of moved laws has no closed form")


@perturb.register
def _(prediction: VelocityDensity, model: Perturbed, x_t: Tensor, source: NoiseSource) -> Prediction:
    phase = source.at("phase").uniform().item() * 6
    clock = cast(Tensor, prediction.t).reshape(-1, *[1] * (x_t.ndim - 2))
    law = Moved(prediction.law, model.scale * torch.sin(2 * x_t[:, 0] + 3 * clock + phase).double())
    return VelocityDensity(prediction.value, prediction.process, x_t, prediction.t, law)


@perturb.register
def _(prediction: FlipRatios, model: Perturbed, x_t: Tensor, source: NoiseSource) -> Prediction:
    phase, value = source.at("phase").uniform().item() * 6, prediction.value
    clock = cast(Tensor, prediction.t).reshape(-1, *[1] * (value.ndim - 1))
    wave = torch.sin(2 * x_t[:, 0] + x_t[:, 1] + 3 * clock + phase)
    return with_value(prediction, value + model.scale * wave)


@subject_of.register
def kac_subject(process: Kac, name: str) -> Subject:
    asked = (kac_kernels, operator_checks, marginal_checks, reverse_checks, path_checks, own_law_checks)
    return flight_subject(KacMixture, process, name, FlipRatios, asked)


@subject_of.register
def zigzag_subject(process: ZigZag, name: str) -> Subject:
    asked = (resting_checks, operator_checks, reverse_checks, path_checks, own_law_checks)
    return flight_subject(FlipGrid, process, name, FlipRatios, asked)


@subject_of.register
def refreshed_subject(process: RefreshedVelocity, name: str) -> Subject:
    asked = (resting_checks, operator_checks, reverse_checks, path_checks)
    return flight_subject(VelocityGrid, process, name, VelocityDensity, asked)


def flight_subject(
    oracle: Callable[..., FlightMixture], process: FiniteSpeed, name: str, kind: type[Prediction], checks: tuple[Check, ...]
) -> Subject:
    """Two humps of data under the process, with a cap that no ratio meets."""
    uncapped = process.with_cap(1e6)
    shape = uncapped.space.shape
    means = torch.tensor([-1.0, 1.0]).reshape(2, *[1] * len(shape)).expand(2, *shape)
    stds = torch.tensor([0.5, 0.4]).reshape(2, *[1] * len(shape)).expand(2, *shape)
    truth = oracle(uncapped, torch.tensor([0.4, 0.6]), means, stds)
    return Subject(name, uncapped, truth, (kind,), None, truth.draw(NoiseSource(1, 20)), checks=checks)
