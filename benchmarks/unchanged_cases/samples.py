"""Samples: every sampler on every process, by an oracle and by networks, and every kind of prediction."""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from .adapter import made, sample
from .leaves import Case, Leaf, mapped, parts_of, told
from .subjects import BY_NAME, SUBJECTS, Subject

SAMPLES = 8
WHICH = ("oracle", "float32", "float64")
BEFORE = {"start": 0.9}  # rates may be infinite at t = 1


def sampler(kind: str, *arguments: Any, **options: Any) -> Callable[[Subject], Any]:
    return lambda subject: made(f"samplers.{kind}", *arguments, **options)


def corrected(predictor: str, corrector: str, rounds: int = 1, **options: Any) -> Callable[[Subject], Any]:
    def make(subject: Subject) -> Any:
        return made(
            "samplers.PredictorCorrector", made(f"samplers.{predictor}"), made(f"samplers.{corrector}", **options), rounds
        )

    return make


def token(kind: str, temperature: float, top_k: int | None, top_p: float | None, *more: Any) -> Callable[[Subject], Any]:
    return lambda subject: made(f"samplers.{kind}", *more, tokens=made("samplers.Tokens", temperature, top_k, top_p))


def rule(kind: str, *arguments: Any, within: str | None = None) -> Callable[[Subject], Any]:
    def make(subject: Subject) -> Any:
        own = made(f"samplers.remasking.{kind}", *arguments)
        return made("samplers.Remasking", own if within is None else made(f"samplers.remasking.{within}", own))

    return make


def by_leaf(number: str, other: str, **held: Callable[[], Any]) -> Callable[[Subject], Any]:
    """One method for numbers and one for the rest; nested products keep the default."""

    def make(subject: Subject) -> Any:
        leaves = subject.leaves if isinstance(subject.leaves, dict) else {}
        flat = {key: leaf for key, leaf in leaves.items() if isinstance(leaf, Leaf)}
        kinds = {key: other if leaf.size or leaf.counts else number for key, leaf in flat.items()}
        methods = {key: made(f"samplers.{kind}") for key, kind in kinds.items()}
        return made("samplers.Leaves", made("samplers.Ancestral"), **methods | {key: own() for key, own in held.items()})

    return make


def replacement(subject: Subject) -> Any:
    """Every second entry is known."""
    x = subject.data(SAMPLES)

    def own(leaf: torch.Tensor) -> Any:
        known = (torch.arange(leaf.numel()) % 2 == 0).reshape(leaf.shape)
        return made("samplers.Replacement", leaf, known, rounds=2)

    if not isinstance(x, dict):
        return own(x)
    flat = {key: own(leaf) for key, leaf in x.items() if not isinstance(leaf, dict)}
    return made("samplers.Leaves", made("samplers.Ancestral", rounds=2), **flat)


SAMPLERS: dict[str, tuple[Callable[[Subject], Any], dict[str, Any]]] = {
    "Ancestral": (sampler("Ancestral"), {}),
    "Ancestral-rounds": (sampler("Ancestral", rounds=2), {}),
    "DDIM": (sampler("DDIM", 0.0), {}),
    "DDIM-eta": (sampler("DDIM", 0.7), {}),
    "EulerMaruyama": (sampler("EulerMaruyama", 1.0), {}),
    "EulerMaruyama-flow": (sampler("EulerMaruyama", 0.0), {}),
    "Heun": (sampler("Heun"), {}),
    "Heun-churn": (sampler("Heun", churn=3.0, low=0.1, high=20.0), {}),
    "Exponential": (sampler("Exponential", 3, 0.5), {}),
    "DPMSolverPP": (sampler("DPMSolverPP", 2), {}),
    "DPMSolverPP-3": (sampler("DPMSolverPP", 3), {}),
    "DPMSolverPP-sde": (sampler("DPMSolverPP", 2, sde=True), {}),
    "UniPC": (sampler("UniPC", 3), {}),
    "DEIS": (sampler("DEIS", 3), {}),
    "AdaptiveODE": (sampler("AdaptiveODE", 1e-2, 1e-2), {"steps": 1}),
    "Langevin": (corrected("Ancestral", "Langevin", scale=1.0), {}),
    "Langevin-snr": (corrected("DDIM", "Langevin", 2, snr=0.16), {}),
    "DetailedBalance": (corrected("Ancestral", "DetailedBalance", scale=0.5), BEFORE),
    "FromGenerator": (sampler("FromGenerator"), BEFORE),
    "FromGenerator-theta": (sampler("FromGenerator", theta=0.5), BEFORE),
    "Euler": (sampler("Euler", hold=True), BEFORE),
    "Euler-gamma": (sampler("Euler", gamma=0.5, hold=False), BEFORE),
    "TauLeaping": (sampler("TauLeaping", minimal=True), BEFORE),
    "TauLeaping-ordinal": (sampler("TauLeaping", ordinal=True), BEFORE),
    "ThetaTrapezoidal": (sampler("ThetaTrapezoidal", 0.5), BEFORE),
    "ThetaRK2": (sampler("ThetaRK2", 0.5), BEFORE),
    "Gillespie": (sampler("Gillespie", intervals=4, low=1e-2, high=0.9), {"steps": 2}),
    "Uniformization": (sampler("Uniformization", intervals=4, low=1e-2, high=0.9), {"steps": 2}),
    "Reveal": (sampler("Reveal", by="random"), {}),
    "Reveal-confidence": (sampler("Reveal", by="confidence"), {}),
    "Reveal-margin": (sampler("Reveal", by="margin"), {}),
    "Reveal-entropy": (sampler("Reveal", by="entropy"), {}),
    "Reveal-tokens": (token("Reveal", 0.7, 2, None), {}),
    "FirstHitting": (sampler("FirstHitting"), {}),
    "FirstHitting-tokens": (token("FirstHitting", 1.0, None, 0.8), {}),
    "Remasking-Cap": (rule("Cap", 0.3), {}),
    "Remasking-Rescale": (rule("Rescale", 0.3), {}),
    "Remasking-Rate": (rule("Rate", 1.5), {}),
    "Remasking-Confidence": (rule("Cap", 0.4, within="Confidence"), {}),
    "Remasking-Loop": (rule("Rate", 1.5, within="Loop"), {}),
    "CategoricalDDIM": (sampler("CategoricalDDIM", eta=0.0, rate=0.0), {}),
    "CategoricalDDIM-eta": (sampler("CategoricalDDIM", eta=0.5, rate=1.0), {}),
    "CategoricalDDIM-tokens": (token("CategoricalDDIM", 0.0, None, None), {}),
    "Routed-score": (sampler("Routed", by="score"), {}),
    "Routed-random": (sampler("Routed", by="random"), {}),
    "Replacement": (replacement, {}),
    "Leaves-DPMSolverPP": (by_leaf("DPMSolverPP", "Ancestral"), {}),
    "Leaves-Heun": (by_leaf("Heun", "Ancestral"), {}),
    "Leaves-Euler": (by_leaf("EulerMaruyama", "Euler"), BEFORE),
}


def drawn(subject: Subject, denoiser: Any, method: Any, **options: Any) -> dict[str, Any]:
    """Some samples; a chain runs its own steps, but those from t = 1 where a start is asked for."""
    given = {"steps": 5, "seed": 11, **options}
    if subject.chain:
        later = {"grid": subject.process().grid.flip(0)[1:]} if given.pop("start", 1.0) < 1 else {}
        given |= {"steps": None, **later}
    return sample(denoiser, None if "x" in given else SAMPLES, sampler=method, **given)


def told_apart(which: str, leaf: Leaf) -> str:
    """What the oracle and either network predict of a leaf in the table of samplers."""
    place = {"oracle": (3, 0), "float32": (0, 0), "float64": (4, 1)}[which]
    return leaf.kinds[place[bool(leaf.size or leaf.counts)] % len(leaf.kinds)]


def every_sampler() -> Iterator[Case]:
    for subject in SUBJECTS:
        for method, (make, options) in SAMPLERS.items():

            def case(subject=subject, make=make, options=options):
                found: dict[str, Any] = {}
                for which in WHICH:
                    kinds = mapped(lambda leaf, which=which: told_apart(which, leaf), subject.leaves)
                    try:
                        found[which] = drawn(subject, subject.denoiser(which, kinds), make(subject), **options)
                    except Exception as error:
                        if isinstance(error, TypeError) and not found:
                            raise  # the process is refused, whatever the denoiser
                        found[which] = error
                return found

            yield f"sample/{subject.name}/{method}", case


def methods_for(subject: Subject) -> list[str]:
    """Methods that ask for different things of a prediction, as far as the process has them."""
    leaves = parts_of(subject.leaves)
    rates = [] if subject.name.startswith("Matrix") else ["FromGenerator"]
    if len(leaves) > 1 or leaves[0].counts:
        return ["Ancestral", *rates]
    if not leaves[0].size:
        return ["Ancestral", "FromGenerator", "Heun"]
    fixed = ["CategoricalDDIM"] if subject.name.startswith(("Masking", "Uniform", "Interpolation")) else []
    return ["Ancestral", *rates, *(["Euler"] if rates else []), *fixed]


def every_kind() -> Iterator[Case]:
    """Each kind of prediction by methods that convert it."""
    for subject in SUBJECTS:
        for kinds in [*subject.kinds, "Energy"]:
            for method in methods_for(subject):
                make, options = SAMPLERS[method]

                def case(subject=subject, kinds=kinds, make=make, options=options):
                    return drawn(subject, subject.denoiser("float64", kinds), make(subject), **{"start": 0.95, **options})

                yield f"kind/{subject.name}/{told(kinds)}/{method}", case
    for key in ("Masking-Cosine", "Uniform-Linear", "Chain-Uniform"):

        def case(own=BY_NAME[key]):
            return drawn(own, own.denoiser("float64", "RawPosterior", kernel="plug-in"), made("samplers.Ancestral"))

        yield f"kind/{key}/plug-in", case


def cases() -> Iterator[Case]:
    yield from every_sampler()
    yield from every_kind()
