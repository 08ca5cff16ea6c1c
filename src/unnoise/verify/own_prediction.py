"""A kind of prediction of one's own: what it means, its conversions, and the bound of the exact model seen through it.

On numbers a kind is its target a x_0 + b eps.  The exact denoiser's value is E[target | x_t], here by quadrature over x_0;
from it every other kind follows and comes back; and with D = alpha b - sigma a the bound's rate is

    g^2/2 (alpha / (sigma D))^2 |error|^2,

the squared error of the score it stands for.  On categories and counts a kind goes through the same rows as the library's.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from unnoise.laws import sum_coordinates
from unnoise.noise import NoiseSource
from unnoise.objectives.closed_forms import rate
from unnoise.predictions import Clean, ContinuousPrediction, CountPrediction, FinitePrediction, Prediction
from unnoise.processes import Gaussian, Thinning, Uniform
from unnoise.schedules import Cosine, LinearBeta, Schedule
from unnoise.verify.bounds import FAST, fast_path_checks, identity_checks
from unnoise.verify.gaussian_kernels import predicted
from unnoise.verify.guard import guarded
from unnoise.verify.load import load_class
from unnoise.verify.rows import Place, Row
from unnoise.verify.run import checks
from unnoise.verify.subjects import CONTINUOUS_KINDS, Subject, count_subject, finite_subject, gaussian_subject
from unnoise.verify.wrong import Perturbed

CONVERTED = 1e-9
TIMES = (0.05, 0.4, 0.9)


def prediction_rows(path: str, thorough: bool = False) -> Iterator[Row]:
    """The rows of `--prediction package.module:name`."""
    kind = load_class(path, "prediction", Prediction)
    families: tuple[tuple[type, Callable[[type, bool], Iterator[Row]]], ...] = (
        (ContinuousPrediction, _on_numbers),
        (FinitePrediction, _on_categories),
        (CountPrediction, _on_counts),
    )
    for family, rows in families:
        if issubclass(kind, family):
            yield from rows(kind, thorough)
            return
    raise ValueError(
        f"--prediction {path!r} is a kind of its own space: verify the process it belongs to, with --process and a subject "
        f"that names the kind"
    )


def _on_categories(kind: type, thorough: bool) -> Iterator[Row]:
    yield from checks(_through(finite_subject(Uniform(3, (2,), LinearBeta()), "Uniform/LinearBeta"), kind), thorough)


def _on_counts(kind: type, thorough: bool) -> Iterator[Row]:
    yield from checks(_through(count_subject(Thinning((1,)), "Thinning/Linear"), kind), thorough)


def _through(subject: Subject, kind: type) -> Subject:
    """The subject seen through one kind alone."""
    return replace(subject, kinds=(kind,), grid_kind=None)


def _on_numbers(kind: Any, thorough: bool) -> Iterator[Row]:
    for schedule in (Cosine(), LinearBeta()):
        name = f"Gaussian/{type(schedule).__name__}"
        subject = _through(gaussian_subject(Gaussian((1,), schedule), name), kind)
        subject.points = subject.points if thorough else subject.points[:10]
        process, place = Gaussian((1,), schedule), Place(name, kind.__name__)
        x0 = subject.points
        yield from _determines(place, kind, schedule)
        for t in TIMES:
            x_t = process.marginal(x0, t).draw(NoiseSource(68, len(x0)))
            yield from _meaning(subject, place, kind, x_t, t)
            yield from _conversions(subject, place, kind, x_t, t)
            yield from _rate(subject, place, kind, x_t, t)
        yield from predicted(subject, place, process, x0[:20], kind)
        yield from identity_checks(subject)
        yield from fast_path_checks(subject)


def posterior_mean(subject: Subject, function: Callable[[Tensor], Tensor], x_t: Tensor, t: float) -> Tensor:
    """E[function(x_0) | x_t] for each row, by the trapezoidal rule over x_0, which is exact for what decays so fast."""
    oracle, process = subject.oracle, subject.process
    line = torch.linspace(-12, 12, 4801, dtype=torch.float64).reshape(-1, *[1] * (x_t.ndim - 1))
    out = []
    for row in x_t:
        here = row.expand(len(line), *row.shape)
        weight = (oracle.log_prob(line) + process.marginal(line, t).log_prob(here)).softmax(0)
        out.append((weight.reshape(line.shape) * function(torch.stack([line, here]))).sum(0))
    return torch.stack(out)


@guarded("D = alpha b - sigma a")
def _determines(place: Place, kind: Any, schedule: Schedule) -> Iterator[Row]:
    """x_0 = (b x_t - sigma value)/D exists inside (0, 1) where D keeps its sign."""
    t = torch.linspace(0, 1, 1001, dtype=torch.float64)[1:-1]
    a, b = kind.target_coefficients(schedule, t)
    d = schedule.alpha(t) * b - schedule.sigma(t) * a
    lost = (d * d[:1].sign() <= 0) | ~d.isfinite()
    row = place.equal("times inside (0, 1) at which D = alpha b - sigma a is 0, or has changed its sign", 0, lost.sum(), 0.0)
    told = "" if row.ok else f"from t = {float(t[lost][0]):g} on: the value does not determine x_0 at every time"
    yield replace(row, note=told)


@guarded("value = E[target | x_t]")
def _meaning(subject: Subject, place: Place, kind: Any, x_t: Tensor, t: float) -> Iterator[Row]:
    clock = torch.tensor([t], dtype=torch.float64)
    exact = posterior_mean(subject, lambda pair: kind.target(subject.process, pair[0], pair[1], clock), x_t, t)
    ours = subject.oracle.predicting(kind)(x_t, t).value
    yield place.equal(f"value = E[target | x_t], by quadrature, t={t:g}", exact, ours, CONVERTED)
    clean = posterior_mean(subject, lambda pair: pair[0], x_t, t)
    back = kind(exact, subject.process, x_t, t).to(Clean).value
    yield place.equal(f"x_0 of it = E[x_0 | x_t], by quadrature, t={t:g}", clean, back, CONVERTED)


@guarded("conversions")
def _conversions(subject: Subject, place: Place, kind: Any, x_t: Tensor, t: float) -> Iterator[Row]:
    """From every kind to this one and back, for values that no oracle gave."""
    wave = torch.sin(3 * x_t) + 0.2
    for other in CONTINUOUS_KINDS:
        given = other(wave, subject.process, x_t, t)  # type: ignore[arg-type]
        there = given.to(kind)
        for back in (given.to(Clean).to(kind), there.to(other).to(kind)):
            yield place.equal(f"{other.__name__} to it, by two ways, t={t:g}", there.value, back.value, CONVERTED)
        yield place.equal(f"{other.__name__} to it and back, t={t:g}", wave, there.to(other).value, CONVERTED)


@guarded("squared error weight = divergence")
def _rate(subject: Subject, place: Place, kind: Any, x_t: Tensor, t: float) -> Iterator[Row]:
    process, x0 = Gaussian((1,), subject.process.schedule), subject.points  # type: ignore[attr-defined,arg-type]
    schedule, clock = process.schedule, torch.full((len(x_t),), t, dtype=torch.float64)
    prediction: Any = Perturbed(subject.oracle.predicting(kind), 1.0, 69)(x_t, clock)
    a, b = kind.target_coefficients(schedule, clock)
    alpha, sigma = schedule.alpha(clock), schedule.sigma(clock)
    weight = 0.5 * schedule.diffusion(clock) * (alpha / (sigma * (alpha * b - sigma * a))).square()
    error = kind.target(process, x0, x_t, clock) - prediction.value
    exact = sum_coordinates(process.coefficient(weight, x_t) * error.square())
    here = Place(place.process, place.prediction, "rate")
    general, fast = (rate(prediction, subject.process, x0, fast=fast) for fast in (False, True))
    yield here.equal(f"divergence = weighted squared error, t={t:g}", exact, general, FAST)
    yield here.equal(f"rate as training takes it = divergence, t={t:g}", general, fast, FAST)
