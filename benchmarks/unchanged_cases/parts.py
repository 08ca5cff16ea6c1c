"""The parts below bounds and samplers: noise by key, schedules, processes, generators, predictions, oracles."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from .adapter import call, local, made, name
from .leaves import Case, Leaf, kinds_of, mapped, parts_of, told, wave
from .subjects import BY_NAME, ROWS, SCHEDULES, SUBJECTS, Subject


def source(seed: int = 3, rows: int = ROWS) -> Any:
    return made("NoiseSource", seed, rows)


def noise() -> Iterator[Case]:
    keys = {"prior": ("prior",), "step": ("step", 3, 1), "leaf": ("state", 0, "age"), "large": (2**40,), "none": ()}
    for key, labels in keys.items():
        for seed in (0, 7, 2**45 + 1):
            own = lambda seed=seed, labels=labels: source(seed).at(*labels)  # noqa: E731

            def case(own=own):
                at = own()
                return {
                    "uniform": at.uniform((3, 2)),
                    "normal": at.normal((3,)),
                    "float32": at.normal((3,), torch.float32),
                    "shared": at.shared_uniform(),
                    "of": at.of(torch.tensor([2, 0])).uniform((2,)),
                    "repeated": at.repeated(3).uniform((2,)),
                    "after": at.repeated(2).at("again").normal((1,)),
                }

            yield f"noise/{key}/{seed}", case
    yield "noise/rows", lambda: made("NoiseSource", 5, torch.tensor([9, 1, 2**33])).at("x").uniform((2,))
    yield "noise/fresh", lambda: name("NoiseSource").fresh(3).normal((2,))


def schedules() -> Iterator[Case]:
    t, s = torch.linspace(0.02, 0.98, 9, dtype=torch.float64), torch.linspace(0.01, 0.5, 9, dtype=torch.float64)
    of_time = ("alpha", "sigma", "beta", "d_alpha", "d_sigma", "log_snr", "d_log_snr", "drift", "diffusion")
    for kind, make in SCHEDULES.items():
        for ask in of_time:
            yield f"schedule/{kind}/{ask}", lambda make=make, ask=ask: getattr(make(), ask)(t)
        for ask in ("step_alpha", "step_beta", "step_variance", "survival"):
            yield f"schedule/{kind}/{ask}", lambda make=make, ask=ask: getattr(make(), ask)(s, t)
        yield (
            f"schedule/{kind}/ends",
            lambda make=make: [getattr(make(), ask)(torch.tensor([0.0, 1.0])) for ask in of_time[:3]],
        )
        yield f"schedule/{kind}/time_of_log_snr", lambda make=make: make().time_of_log_snr(torch.linspace(-3, 3, 5).double())
        for ask in ("time_of_alpha", "time_of_beta"):
            yield f"schedule/{kind}/{ask}", lambda make=make, ask=ask: getattr(make(), ask)(s)


def noised(subject: Subject, t: Any, label: str = "noised") -> Any:
    """A state at t of the subject's data."""
    return subject.process().marginal(subject.data(), t).draw(source().at(label))


def times(subject: Subject) -> tuple[Any, Any]:
    """A pair s < t; of a chain two of its own."""
    if subject.chain:
        grid = subject.process().grid
        return float(grid[1]), float(grid[-2])
    return 0.3, torch.tensor([0.45, 0.6, 0.75, 0.9], dtype=torch.float64)


def attempted(function: Callable[[], Any]) -> Any:
    """What a function returns, or the error that it raises."""
    try:
        return function()
    except Exception as error:
        return error


def law(leaf: Leaf, function: Callable = lambda probs: probs) -> Any:
    """Of one leaf: a table, or mean and variance."""
    if leaf.size or leaf.counts:
        return function(wave(ROWS, *leaf.shape, leaf.states or 5, phase=0.5).softmax(-1))
    return leaf.data(ROWS), 0.7 + 0 * leaf.data(ROWS)


def processes() -> Iterator[Case]:
    """The kernels: laws at points, drawn, and compared."""
    for subject in SUBJECTS:

        def laws(subject=subject):
            process, x0, (s, t) = subject.process(), subject.data(), times(subject)
            x_s, x_t = noised(subject, s), noised(subject, t)
            each = {
                "prior": process.prior(ROWS, torch.float64),
                "marginal": process.marginal(x0, t),
                "transition": process.transition(x_s, s, t),
                "posterior": process.posterior(x_t, x0, s, t),
            }
            drawn = {key: law.draw(source().at(key)) for key, law in each.items()}
            scored = {key: law.log_prob(drawn[key]) for key, law in each.items()}
            return {"drawn": drawn, "log_prob": scored, "kl": process.marginal(x0, t).kl(each["prior"])}

        def asked(subject=subject):
            process, x0, (_, t) = subject.process(), subject.data(), times(subject)
            x_t = noised(subject, t)
            noiseless = [process.noiseless(value) for value in (0.0, times(subject)[0], 1.0)]
            return {
                "prior_kl": process.prior_kl(x0),
                "movable": process.movable(x_t),
                "noiseless": noiseless,
                "low": process.cutoff,
            }

        def rates(subject=subject):
            process, x0, (_, t) = subject.process(), subject.data(), times(subject)
            x_t = noised(subject, t)
            return {"forward": local(process.local(x_t, t)), "reverse": local(process.reverse(x_t, x0, t).local())}

        def carried(subject=subject):
            process, (s, t) = subject.process(), times(subject)
            forth = process.push(mapped(lambda leaf: law(leaf, torch.log), subject.leaves), s, t)
            return {"push": forth, "inverse": attempted(lambda: process.inverse(mapped(law, subject.leaves), s, t))}

        def support(subject=subject):
            small = subject.data(1)
            nodes, weights = subject.process().support(small, times(subject)[0])
            return {"nodes": mapped(lambda leaf, x: x, subject.leaves, nodes), "weights": weights}

        for key, case in (("laws", laws), ("asked", asked), ("rates", rates), ("carried", carried), ("support", support)):
            if not (subject.wide and case is support):
                yield f"process/{subject.name}/{key}", case


def smooth(leaves: Any) -> Callable[[Any], Tensor]:
    """A test function, positive, of all coordinates together."""

    def phi(x: Any) -> Tensor:
        total = sum((0.3 + 0.1 * i) * leaf.double().flatten(1).cos().sum(1) for i, leaf in enumerate(parts_of(x)))
        return (0.2 * total).exp()

    return phi


def generators() -> Iterator[Case]:
    for subject in SUBJECTS:
        if subject.chain:
            continue

        def operator(subject=subject):
            generator, x, phi = subject.process().generator(0.6), noised(subject, 0.6), smooth(subject.leaves)
            backward = generator.reversed(lambda y: phi(y).log())
            return {
                "act": generator.act(phi, x),
                "adjoint": generator.adjoint(phi, x),
                "reversed": local(backward.local(x)),
                "reversed act": backward.act(phi, x),
                "sum": (generator + generator).act(phi, x),
            }

        def part(subject=subject):
            path = () if not isinstance(subject.leaves, dict) else (next(iter(subject.leaves)),)
            return subject.process().generator(0.6).coordinate(path, 0).act(smooth(subject.leaves), noised(subject, 0.6))

        yield f"generator/{subject.name}/operator", operator
        yield f"generator/{subject.name}/coordinate", part
    for key in (
        "Masking-Cosine",
        "Uniform-LinearBeta",
        "Mixture-moving",
        "RateMatrix-neighbour",
        "BirthDeath-Cosine",
        "Product-categories",
    ):

        def matrices(own=BY_NAME[key]):
            process, at = own.process(), name("generators.kolmogorov.matrices")
            space, t = process.state_space, torch.tensor([0.2, 0.6], dtype=torch.float64)
            points = made("generators.kolmogorov.states", space)
            law = (1 + 0.5 * wave(len(parts_of(points)[0]))).log_softmax(0).exp()
            found = {"matrices": at(space, process.local, t), "code": made("generators.kolmogorov.code", space, points)}
            solved = made("generators.kolmogorov.solve", lambda t: at(space, process.local, t), law, 0.1, 0.6, 1e-6)
            return {**found, "solved": solved, "matrix": made("generators.kolmogorov.matrix", process.generator(0.4))}

        yield f"generator/{key}/kolmogorov", matrices


def predictions() -> Iterator[Case]:
    """Each kind of prediction as the other kinds, as a generator and as a kernel, and how far it is from the truth."""
    for subject in SUBJECTS:
        for kinds in [*subject.kinds, "Energy"]:

            def made_at(subject=subject, kinds=kinds):
                t = times(subject)[1]
                x_t = noised(subject, t)
                return subject.denoiser("float64", kinds)(x_t, t), x_t, t

            def generator(subject=subject, made_at=made_at):
                prediction, x_t, t = made_at()
                truth = subject.process().reverse(x_t, subject.data(), t)
                return {"local": local(prediction.local()), "rate": made("divergence", truth, prediction)}

            def kernel(subject=subject, made_at=made_at):
                prediction, x_t, t = made_at()
                s = times(subject)[0] if not subject.chain else float(subject.process().grid[-3])
                law = prediction.step(s)
                x_s, truth = law.draw(source().at("step")), subject.process().reverse(x_t, subject.data(), t)
                return {"drawn": x_s, "log_prob": law.log_prob(x_s), "kl": made("divergence", truth, prediction, s)}

            yield f"prediction/{subject.name}/{told(kinds)}/generator", generator
            yield f"prediction/{subject.name}/{told(kinds)}/kernel", kernel
            if isinstance(kinds, dict):
                continue
            for other in subject.leaves.kinds if not isinstance(subject.leaves, dict) else ():
                if other != kinds:

                    def converted(subject=subject, made_at=made_at, kinds=kinds, other=other):
                        prediction, x_t, t = made_at()  # what a network says may be no law of x_0: an oracle's is
                        exact = attempted(lambda: subject.oracle(kinds)(x_t, t).by_leaf().to(kinds_of(other)).value)
                        return {
                            "network": attempted(lambda: prediction.by_leaf().to(kinds_of(other)).value),
                            "oracle": exact,
                        }

                    yield f"prediction/{subject.name}/{told(kinds)}/to-{other}", converted
    own = BY_NAME["Gaussian-Cosine"]
    label = {"label": wave(ROWS, phase=0.8)}
    yield (
        "prediction/condition",
        lambda: call(own.denoiser("float32", "Clean"), own.data().float(), 0.5, condition=label).value,
    )


def oracles() -> Iterator[Case]:
    for subject in SUBJECTS:

        def case(subject=subject):
            oracle, x0, (_, t) = subject.oracle(subject.kinds[0]), subject.data(), times(subject)
            x_t = noised(subject, t)
            found = {"log_prob": oracle.log_prob(x0), "log_marginal": oracle.log_marginal(x_t, t)}
            return {**found, "drawn": oracle.draw(source()), "log_decode": oracle.log_decode(x0, x_t, t)}

        yield f"oracle/{subject.name}", case


def cases() -> Iterator[Case]:
    for part in (noise, schedules, processes, generators, predictions, oracles):
        yield from part()
