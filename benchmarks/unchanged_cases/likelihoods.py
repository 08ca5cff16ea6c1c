"""Likelihoods by each method, and what is fitted: schedules and variances."""

from collections.abc import Iterator
from typing import Any

import torch

from .adapter import likelihood, made, objective, sample
from .bounds import bounded, rule, trained
from .leaves import Case, kinds_of, mapped, number, parts_of, told, wave
from .networks import Fixed
from .parts import attempted, source
from .subjects import BY_NAME, SUBJECTS


def likelihoods() -> Iterator[Case]:
    yield from flows()
    yield from laws()
    yield from binned()


def flows() -> Iterator[Case]:
    """By the probability flow."""
    traces: dict[str, dict[str, Any]] = {
        "exact": {"trace": "exact"},
        "rademacher": {"trace": "hutchinson", "probes": 2, "probe": "rademacher"},
        "gaussian": {"trace": "hutchinson", "probes": 1, "probe": "gaussian"},
    }
    for key in (
        "Gaussian-Cosine",
        "Gaussian-LinearBeta",
        "Gaussian-VE",
        "Gaussian-PerCoordinate",
        "Gaussian-correlated",
        "Gaussian-image",
        "Gaussian-wide",
        "Product-numbers",
    ):
        for flow, given in traces.items():
            for which in ("oracle", "float32"):

                def case(own=BY_NAME[key], given=given, which=which):
                    kinds = mapped(lambda leaf: "Velocity", own.leaves)
                    x0 = mapped(lambda x: x.float() if which == "float32" else x, own.data(3))
                    method = made("ProbabilityFlow", rtol=1e-3, atol=1e-3, **given)
                    return likelihood(own.denoiser(which, kinds), x0, method, seed=5)

                yield f"likelihood/{key}/flow-{flow}/{which}", case


def laws() -> Iterator[Case]:
    """By weighted paths and by enumeration."""
    for own in SUBJECTS:

        def paths_of(own=own):
            method = made("PathWeighted", paths=3, steps=None if own.chain else 4)
            kinds = own.kinds[:1] + own.kinds[-1:]
            each = {
                told(k): (lambda k=k: likelihood(own.denoiser("float64", k), own.data(3), method, seed=5)) for k in kinds
            }
            each["oracle"] = lambda: likelihood(own.oracle(own.kinds[0]), own.data(3), method, seed=5)
            return {key: attempted(run) for key, run in each.items()}

        yield f"likelihood/{own.name}/paths", paths_of
        if own.wide or any(not leaf.size for leaf in parts_of(own.leaves)):
            continue

        def enumerated(own=own):
            chain = {} if own.chain else {"steps": 4}
            denoisers = {"oracle": own.oracle(own.kinds[0]), "float64": own.denoiser("float64", own.kinds[0])}
            steps = made("Enumeration", **chain)
            found = {k: attempted(lambda d=d: likelihood(d, own.data(3), steps, seed=5)) for k, d in denoisers.items()}
            if not own.chain:
                rough = made("Enumeration", tolerance=1e-2)
                found["rates"] = attempted(lambda: likelihood(denoisers["float64"], own.data(3), rough, seed=5))
            return found

        yield f"likelihood/{own.name}/enumeration", enumerated


def binned() -> Iterator[Case]:
    """Of data in bins, and with a condition."""
    for kind in ("Uniform", "Variational"):

        def dequantised(own=BY_NAME["Gaussian-Cosine"], kind=kind):
            bins = made(f"likelihoods.{kind}Dequantisation", *(((2,), 4) if kind == "Variational" else ()))
            with torch.no_grad():
                for parameter in bins.parameters():
                    parameter += 0.2 * wave(*parameter.shape)
            flow = made("ProbabilityFlow", rtol=1e-2, atol=1e-2)
            method = made("Dequantised", flow, width=0.5, low=-1.0, dequantisation=bins, draws=2)
            return likelihood(own.oracle("Velocity"), torch.tensor([[0, 3], [2, 1]]), method, seed=5)

        yield f"likelihood/dequantised/{kind}", dequantised
    label = {"label": wave(3, phase=0.8)}
    for key, method in (
        ("Gaussian-Cosine", "ProbabilityFlow"),
        ("Masking-Cosine", "PathWeighted"),
        ("Gaussian-VE", "PathWeighted"),
    ):

        def told_label(own=BY_NAME[key], method=method):
            given = {"rtol": 1e-2, "atol": 1e-2} if method == "ProbabilityFlow" else {"paths": 3, "steps": 4}
            denoiser = own.denoiser("float64", own.kinds[3] if own.numbers else own.kinds[0])
            return likelihood(denoiser, own.data(3), made(method, **given), seed=5, condition=label)

        yield f"condition/{key}/likelihood", told_label


def fitted() -> Iterator[Case]:
    def schedule(shape: tuple[int, ...]) -> Any:
        process = made("Gaussian", (2,), made("schedules.Learned", shape, 4))
        denoiser = made("Denoiser", Fixed(number(2), "Velocity").double(), process, kinds_of("Velocity"))
        target = objective(denoiser, times=made("objectives.Stratified"))
        seen = made("fit_schedule", target, number(2).data(20), steps=6, batch=8, lr=0.1, seed=4)
        return {**seen, "schedule": dict(process.schedule.named_parameters())}

    def variance(which: str) -> Any:
        own = BY_NAME["Chain-Gaussian"]
        x0 = own.data(8).to(getattr(torch, which))
        denoiser = made("fit_variance", own.denoiser(which, "Clean"), x0, noise=source(6, 8))
        drawn = sample(denoiser, 3, sampler=made("samplers.Ancestral"), steps=5, seed=2)
        return {"bound": bounded(denoiser, x0, rule("Grid")), "drawn": drawn}

    yield "fit/schedule", lambda: schedule(())
    yield "fit/schedule-each", lambda: schedule((2,))
    for which in ("float32", "float64"):
        yield f"fit/variance/{which}", lambda which=which: variance(which)

    def learning() -> Any:
        """A schedule that learns with the network."""
        process = made("Gaussian", (2,), made("schedules.Learned", (), 4))
        denoiser = made("Denoiser", Fixed(number(2), "Clean").double(), process, kinds_of("Clean"))
        return trained(objective(denoiser, times=made("objectives.Stratified")), denoiser, number(2).data(6))

    yield "fit/learning", learning


def cases() -> Iterator[Case]:
    yield from likelihoods()
    yield from fitted()
