"""Bounds, by every rule of times; decoders, weightings and their gradients."""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from .adapter import call, made, name, objective, terms
from .leaves import Case, kinds_of, mapped, parts_of, told, wave
from .networks import Lazy
from .parts import attempted, source
from .subjects import BY_NAME, ROWS, SUBJECTS, Subject

Rule = tuple[str, tuple[Any, ...], bool]  # a time rule, its arguments, and whether the expectation over x_t is exact


def rule(kind: str, *arguments: Any, exact: bool = False) -> Rule:
    return kind, arguments, exact


def rules_of(subject: Subject) -> list[Rule]:
    """The rules that a subject is put to; some are refused."""
    leaves = parts_of(subject.leaves)
    numbers = sum(leaf.data(1).numel() for leaf in leaves if not (leaf.size or leaf.counts))
    small = (numbers < 2 or len(leaves) == 1) and not subject.wide and "FromSDE" not in subject.name  # a slow schedule
    found = [rule("Stratified"), rule("Importance", 2, 4.0)]
    if subject.chain:
        wrong = [rule("Quadrature", 3, exact=True)] if subject.name == "Chain-Gaussian" else []
        return [*found, rule("Grid"), *([rule("Grid", exact=True)] if small else []), *wrong]
    found += [rule("Uniform", 2), *([rule("Quadrature", 3, 4.0, 2.0, exact=True)] if small else [])]
    if subject.name.startswith(("Masking", "Uniform-Linear", "Product-mixed")):
        found += [rule("Count", 2), rule("MixedCount", 2)]
    return found


def bounded(denoiser: Any, x0: Any, times: Rule, **options: Any) -> dict[str, Any]:
    kind, arguments, exact = times
    own = made(f"objectives.{kind}", *arguments)
    return terms(call(name("bound"), denoiser, x0, times=own, exact=exact, seed=17, **options))


def bounds() -> Iterator[Case]:
    for subject in SUBJECTS:
        for times in rules_of(subject):
            rows = 1 if times[2] and not parts_of(subject.leaves)[0].size else 3
            told_rule = f"{times[0]}{'-exact' if times[2] else ''}"
            for kinds in [*subject.kinds, *(["Energy"] if not times[2] else [])]:

                def case(subject=subject, kinds=kinds, times=times, rows=rows):
                    return bounded(subject.denoiser("float64", kinds), subject.data(rows), times)

                yield f"bound/{subject.name}/{told_rule}/{told(kinds)}", case

            def truth(subject=subject, times=times, rows=rows):
                return bounded(subject.oracle(subject.kinds[0]), subject.data(rows), times)

            def single(subject=subject, times=times, rows=rows):
                x0 = mapped(lambda x: x.float() if x.is_floating_point() else x, subject.data(rows))
                return bounded(subject.denoiser("float32", subject.kinds[0]), x0, times, fast=False)

            yield f"bound/{subject.name}/{told_rule}/oracle", truth
            yield f"bound/{subject.name}/{told_rule}/float32-slow", single


def decoders() -> Iterator[Case]:
    levels = mapped(lambda x: (x * 4).round() / 4, BY_NAME["Gaussian-Cosine"].data())
    for key, kind, arguments, options, x0 in (
        ("Gaussian-Cosine", "Gaussian", (), {}, None),
        ("Gaussian-Cosine", "Gaussian", (), {"network": True}, None),
        ("Gaussian-correlated", "Gaussian", (), {"network": True}, None),
        ("Gaussian-VE", "DiscretisedGaussian", (17, -2.0, 2.0), {}, levels),
        ("Gaussian-Cosine", "DiscretisedGaussian", (17, -2.0, 2.0), {}, levels),
        ("Masking-Linear", "Categorical", (), {}, None),
        ("Uniform-Linear", "Categorical", (), {}, None),
        ("Thinning-arrivals", "Counts", (), {}, None),
    ):

        def case(own=BY_NAME[key], kind=kind, arguments=arguments, options=options, x0=x0):
            decoder = made(f"decoders.{kind}", *arguments, **options)
            given = {"decoder": decoder, "cutoff": 0.1}
            kinds = {k: own.denoiser("float64", k) for k in own.kinds}
            x0 = own.data() if x0 is None else x0
            return {k: attempted(lambda d=d: bounded(d, x0, rule("Importance"), **given)) for k, d in kinds.items()}

        yield f"decoder/{key}/{kind}{'-network' if options else ''}", case
    for key in ("Gaussian-Linear", "Uniform-sizes", "Product-nested", "Thinning-death", "Product-mixed"):

        def exact(own=BY_NAME[key]):
            oracle = own.oracle(own.kinds[0])
            return bounded(oracle, own.data(), rule("Importance"), decoder=made("decoders.Exact", oracle), cutoff=0.2)

        yield f"decoder/{key}/Exact", exact

    def by_leaf():
        own, kinds = BY_NAME["Product-mixed"], {"y": ("Gaussian", True), "c": ("Categorical",), "n": ("Counts",)}
        decoder = made("decoders.Leaves", **{key: made(f"decoders.{kind}", *more) for key, (kind, *more) in kinds.items()})
        return bounded(own.denoiser("float64", own.kinds[0]), own.data(), rule("Stratified"), decoder=decoder, cutoff=0.1)

    yield "decoder/Product-mixed/Leaves", by_leaf


WEIGHTINGS: dict[str, Callable[[], Any]] = {
    **{kind: lambda kind=kind: made(f"weightings.{kind}") for kind in ("Bound", "Simple", "X0", "V", "CrossEntropy")},
    "MinSNR": lambda: made("weightings.MinSNR", 5.0),
    "EDM": lambda: made("weightings.EDM", 0.5),
    "Sigmoid": lambda: made("weightings.Sigmoid", 1.0),
    "Balanced": lambda: made("weightings.Balanced", 8.0),
    "Leaves": lambda: made("weightings.Leaves", y=made("weightings.Simple"), c=made("weightings.CrossEntropy")),
}


def trained(target: Any, denoiser: Any, x0: Any, loss_only: bool = False, **options: Any) -> dict[str, Any]:
    """The terms of an objective, and the gradient of its loss."""
    target.loss_only = loss_only
    result = call(target, x0, noise=source(23, len(parts_of(x0)[0])), **options)
    result.loss.mean().backward()
    return {**terms(result), "gradient": {key: value.grad for key, value in denoiser.named_parameters()}}


def objectives() -> Iterator[Case]:
    for key in (
        "Gaussian-wide",
        "Gaussian-VE",
        "Gaussian-PerCoordinate",
        "Gaussian-correlated",
        "Masking-wide",
        "Uniform-wide",
        "RateMatrix-neighbour",
        "Thinning-wide",
        "Product-mixed",
        "Product-nested",
        "Chain-Gaussian",
        "Chain-Masking",
    ):
        own = BY_NAME[key]
        for weighting, make in WEIGHTINGS.items():
            for which, kinds in (
                ("float32", own.kinds[0]),
                ("float64", own.kinds[3 % len(own.kinds)] if weighting != "CrossEntropy" else own.kinds[1]),
            ):
                if weighting in ("Leaves", "Balanced") and which == "float32":
                    continue

                def case(own=own, make=make, which=which, kinds=kinds, loss_only=weighting in ("Balanced", "V")):
                    denoiser = own.denoiser(which, kinds)
                    x0 = mapped(lambda x: x.to(getattr(torch, which)) if x.is_floating_point() else x, own.data(6))
                    target = objective(denoiser, weighting=make(), times=made("objectives.Importance", 1, 4.0))
                    return trained(target, denoiser, x0, loss_only)

                yield f"objective/{key}/{weighting}/{which}", case
    for key in ("Masking-Linear", "Product-mixed", "Uniform-Linear"):
        for times in ("Count", "MixedCount", "Stratified"):

            def counted(own=BY_NAME[key], times=times):
                denoiser = own.denoiser("float64", own.kinds[0])
                return trained(objective(denoiser, times=made(f"objectives.{times}", 2)), denoiser, own.data(6))

            yield f"objective/{key}/{times}", counted

    def lazy(own=BY_NAME["Masking-Linear"]):
        denoiser = made("Denoiser", Lazy(own.leaves).double(), own.process(), kinds_of("Posterior"))
        return trained(objective(denoiser, times=made("objectives.Count", 2)), denoiser, own.data(6))

    yield "objective/Masking-Linear/lazy", lazy


def observed() -> Iterator[Case]:
    for key in ("Product-mixed", "Product-numbers", "Product-categories", "Product-nested"):
        for times in ("MixedCount", "Importance", "Stratified"):
            for share, weighting in ((0.5, None), (1.0, None), (0.7, "V")):

                def case(own=BY_NAME[key], times=times, share=share, weighting=weighting):
                    denoiser, own_times = own.denoiser("float64", own.kinds[0]), made(f"objectives.{times}", 2)
                    weigh = None if weighting is None else WEIGHTINGS[weighting]()
                    target = objective(denoiser, "Observed", share=share, weighting=weigh, times=own_times)
                    return trained(target, denoiser, own.data(128))

                yield f"observed/{key}/{times}/{share}", case


def conditioned() -> Iterator[Case]:
    """Bounds of networks that are told a label of each row, or their own first estimate."""
    for key in ("Gaussian-scalar", "Masking-Linear", "Uniform-Linear", "Product-numbers", "Chain-Gaussian"):
        own = BY_NAME[key]
        kinds = mapped(lambda leaf: "Velocity" if not leaf.size else "Posterior", own.leaves)
        label = {"label": wave(ROWS, phase=0.8)}
        for times in rules_of(own):

            def case(own=own, kinds=kinds, times=times, label=label):
                return bounded(own.denoiser("float64", kinds), own.data(), times, condition=label)

            yield f"condition/{key}/bound-{times[0]}{'-exact' if times[2] else ''}", case

        def gradient(own=own, kinds=kinds, label=label):
            denoiser = own.denoiser("float64", kinds)
            return trained(objective(denoiser, times=made("objectives.Stratified")), denoiser, own.data(), condition=label)

        def twice(own=own, kinds=kinds):
            denoiser = own.denoiser("float64", kinds, self_condition=True)
            return trained(objective(denoiser, times=made("objectives.Stratified")), denoiser, own.data())

        yield f"condition/{key}/objective", gradient
        yield f"self-condition/{key}/objective", twice


def cases() -> Iterator[Case]:
    for part in (bounds, decoders, objectives, observed, conditioned):
        yield from part()
