"""What else `sample` can be asked: variances, grids, budgets, rows, states to start from, conditions, self-conditioning."""

from collections.abc import Iterator
from typing import Any

import torch

from .adapter import made, name, sample
from .leaves import Case, mapped, wave
from .networks import Lazy
from .samples import SAMPLERS, SAMPLES, by_leaf, drawn
from .subjects import BY_NAME


def variances() -> Iterator[Case]:
    fitted = lambda x_t, t: (0.3 * t).reshape(-1, 1).to(x_t)  # noqa: E731
    for subject in ("Chain-Gaussian", "Chain-VE", "Gaussian-correlated"):
        own = BY_NAME[subject]
        for kind, arguments in (("Posterior", ()), ("Forward", ()), ("Learned", ()), ("Optimal", (fitted,))):

            def case(own=own, kind=kind, arguments=arguments):
                variance = made(f"variances.{kind}", *arguments)
                denoiser = own.denoiser("float64", "Velocity", variance=variance, pair=kind == "Learned")
                return drawn(own, denoiser, made("samplers.Ancestral"))

            yield f"variance/{subject}/{kind}", case


def options() -> Iterator[Case]:
    """The other arguments of `sample`."""
    numbers, masks, mixed = (BY_NAME[key] for key in ("Gaussian-Cosine", "Masking-Linear", "Product-mixed"))
    yield from gridded(numbers, masks)
    yield from asked_for(numbers, masks, mixed)
    yield from others(numbers, mixed)


def gridded(numbers: Any, masks: Any) -> Iterator[Case]:
    grids: dict[str, tuple[Any, ...]] = {"Uniform": (), "Quadratic": (), "LogSNR": (), "Karras": (5.0,)}
    for kind, arguments in grids.items():
        for subject in (numbers, masks, BY_NAME["Gaussian-EDM"]):

            def case(subject=subject, kind=kind, arguments=arguments):
                grid = made(f"samplers.grids.{kind}", *arguments)
                return drawn(subject, subject.oracle(subject.kinds[0]), made("samplers.Ancestral"), grid=grid)

            yield f"option/grid-{kind}/{subject.name}", case


def asked_for(numbers: Any, masks: Any, mixed: Any) -> Iterator[Case]:
    asked: dict[str, dict[str, Any]] = {
        "trajectory": {"trajectory": True},
        "ends": {"start": 0.8, "end": 0.1},
        "times": {"grid": [0.9, 0.5, 0.2, 0.0], "steps": None},
        "calls": {"calls": 6, "steps": None},
        "first": {"first": 3},
        "rows": {"rows": 5 * torch.arange(SAMPLES) % 17},
        "float32": {"dtype": torch.float32},
    }
    for subject in (numbers, masks, mixed, BY_NAME["Thinning-death"]):
        for key, given in asked.items():
            for method in (
                "Ancestral",
                "DPMSolverPP" if subject is numbers else "Reveal" if subject is masks else "Replacement",
            ):

                def case(subject=subject, given=given, method=method):
                    return drawn(
                        subject, subject.denoiser("float64", subject.kinds[0]), SAMPLERS[method][0](subject), **given
                    )

                yield f"option/{key}/{subject.name}/{method}", case

        def begun(subject=subject):
            method = made("samplers.Ancestral")
            return drawn(subject, subject.oracle(subject.kinds[0]), method, x=subject.data(SAMPLES), start=0.6)

        yield f"option/x/{subject.name}", begun


def others(numbers: Any, mixed: Any) -> Iterator[Case]:
    yield "option/tolerance", lambda: sample(numbers.oracle("Clean"), SAMPLES, tolerance=1e-3, seed=2)

    def frozen():
        method = by_leaf("DDIM", "Ancestral", y=lambda: made("samplers.Frozen"))(mixed)
        return drawn(mixed, mixed.network(mixed.kinds[0], torch.float64), method)

    yield "option/frozen", frozen
    for key, methods in (
        ("Masking-Linear", ("Ancestral", "Reveal", "FirstHitting", "Remasking-Cap")),
        ("Uniform-Linear", ("Ancestral", "CategoricalDDIM")),
    ):
        for method in methods:

            def case(own=BY_NAME[key], method=method):
                denoiser = made("Denoiser", Lazy(own.leaves).double(), own.process(), name("predictions.Posterior"))
                return drawn(own, denoiser, SAMPLERS[method][0](own))

            yield f"option/lazy/{key}/{method}", case


def seen_twice() -> Iterator[Case]:
    """Self-conditioning, and conditions of every row."""
    label = {"label": wave(SAMPLES, phase=0.8)}
    more = {"Gaussian-Cosine": ("DDIM", "AdaptiveODE"), "Masking-Linear": ("FirstHitting", "Reveal", "Routed-score")}
    for key in ("Gaussian-Cosine", "Masking-Linear", "Uniform-Linear", "Product-numbers", "Chain-Gaussian"):
        for method in ("Ancestral", "FromGenerator", *more.get(key, ())):
            make, options = SAMPLERS[method]

            def case(twice: bool, own=BY_NAME[key], make=make, options=options):
                kinds = mapped(lambda leaf: "Velocity" if not leaf.size else "Posterior", own.leaves)
                if twice:
                    return drawn(own, own.denoiser("float64", kinds, self_condition=True), make(own), **options)
                return drawn(own, own.denoiser("float32", kinds), make(own), condition=label, **options)

            yield f"self-condition/{key}/{method}", lambda case=case: case(True)
            yield f"condition/{key}/{method}", lambda case=case: case(False)


def cases() -> Iterator[Case]:
    for part in (variances, options, seen_twice):
        yield from part()
