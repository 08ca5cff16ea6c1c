"""A denoiser: anything with a `process` and `forward(x_t, t, **condition) -> Prediction`.

An oracle, a guided denoiser, a mixture of two and an EMA copy are denoisers.  What samplers and bounds may ask of one beside
its predictions has answers in `AnyDenoiser` that hold for wrappers, whose inner denoisers are their parts (submodules):

    kinds          what it predicts, a tree over the leaves; None where that is not known before it is asked
    dtype, device  of its parameters, those of processes left out: where states should be, and in which precision
    passes         evaluations of networks in one call
    cutoff         where its bound starts unless told otherwise
    latest         where sampling starts unless told otherwise
    plan           how it is sampled unless told, where that is not its process's own way: a `samplers.Plan`
    code           what stands for the data in the states of the process, if these are not the data themselves
    space          of the data

`Denoiser` is network + process + what the network's numbers mean.  A network is any module with `forward(x, t, **condition)`
that returns a plain tensor (a dict of them on a product); t is forward time, one entry per row, or a dict with one entry per
leaf where leaves are at different times.  If it also has methods `features(x, t, **condition)` and `head(h)`, losses and
samplers apply the head only to the rows they need; a part (an `nn.Module`) called `features` is something else.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn

from unnoise.checks import Unanswered, as_times, fits, fits_times, instance_of, leaf_time
from unnoise.clocks import as_told
from unnoise.codes import Code
from unnoise.conditions import Condition, checked, given, joined
from unnoise.conditions import rows_of as rows_of_condition
from unnoise.noise import NoiseSource
from unnoise.predictions import Clean, Energy, OutputReading, Prediction, ProductPrediction, variances
from unnoise.predictions.base import check_output
from unnoise.predictions.finite import check_kernel
from unnoise.predictions.kinds import Kinds, cutoff_of, latest_of, resolve_kinds
from unnoise.processes import Gaussian, Process
from unnoise.self_conditioning import check_kinds, first_pass
from unnoise.shapes import AnyState, Clock, Tree
from unnoise.spaces import Space
from unnoise.tree import batch_size, first_leaf, join, map_leaves
from unnoise.tree import rows as some_rows

Query = tuple[Any, Any, Condition]  # a state, its time, and what is told


class AnyDenoiser(nn.Module):
    """What bounds, samplers and likelihoods ask for."""

    process: Process
    plan: Any = None
    _kinds: Kinds = None

    def __init_subclass__(cls, **options: Any) -> None:
        """What a class from elsewhere returns is looked at; the library's own return predictions."""
        super().__init_subclass__(**options)
        if "forward" in vars(cls) and cls.__module__.partition(".")[0] != "unnoise":
            cls.forward = _returns_prediction(cls.forward)  # type: ignore[method-assign]

    def forward(self, x_t: AnyState, t: AnyState, /, **condition: Any) -> Prediction:
        name = type(self).__name__
        raise Unanswered(
            f"the denoiser {name} does not say what it predicts: write the method forward(x_t, t, **condition) of the class "
            f"{name}"
        )

    def together(self, queries: Sequence[Query]) -> list[Prediction]:
        """Predictions at several (x_t, t, condition), of one evaluation of the network where that can be."""
        return [self(x_t, t, **condition) for x_t, t, condition in queries]

    @property
    def kinds(self) -> Kinds:
        """The kind of every leaf: as set, else what all inner denoisers of the same process predict, else None."""
        if self._kinds is not None:
            return self._kinds
        told = [inner.kinds if inner.process.base is self.process.base else None for inner in inner_denoisers(self)]
        return told[0] if told and all(kinds == told[0] for kinds in told) else None

    @kinds.setter
    def kinds(self, kinds: Kinds) -> None:
        self._kinds = kinds

    @property
    def dtype(self) -> torch.dtype:
        """Of its first parameter of floating point; float64 where it has none."""
        first = first_parameter(self)
        return torch.float64 if first is None else first.dtype

    @property
    def device(self) -> torch.device:
        """Of its first parameter of floating point; the CPU where it has none."""
        first = first_parameter(self)
        return torch.device("cpu") if first is None else first.device

    @property
    def passes(self) -> int:
        """Evaluations of networks in one call: the inner denoisers' together, 1 where there are none."""
        return sum(inner.passes for inner in inner_denoisers(self)) or 1

    @property
    def cutoff(self) -> float:
        """The earliest time that its bound visits: what its kinds allow, and every inner denoiser."""
        own = cutoff_of(self.process, self.kinds)
        if self.process.grid is not None:
            return own
        return max([own, *(inner.cutoff for inner in inner_denoisers(self))])

    @property
    def latest(self) -> float:
        """The latest time at which its kinds, and every inner denoiser, say something of x_0."""
        return min([latest_of(self.process, self.kinds), *(inner.latest for inner in inner_denoisers(self))])

    @property
    def code(self) -> Code | None:
        """Of inner denoisers, if they all have the same; None where the data themselves are noised."""
        codes = [inner.code for inner in inner_denoisers(self)]
        return codes[0] if codes and all(code is codes[0] for code in codes) else None

    @property
    def space(self) -> Space:
        """Where its data live."""
        return self.process.space if self.code is None else self.code.space

    @property
    def end(self) -> float:
        """The time at which the way back ends unless told otherwise."""
        return self.cutoff if self.code is not None and self.code.rounds else 0.0


def _returns_prediction(forward: Callable[..., Any]) -> Callable[..., Prediction]:
    @wraps(forward)
    def checked_forward(self: AnyDenoiser, *state: Any, **condition: Any) -> Prediction:
        prediction = forward(self, *state, **condition)
        if isinstance(prediction, Prediction):
            return prediction
        raise TypeError(
            f"{type(self).__name__}.forward returned a {type(prediction).__name__}: return a prediction, such as "
            f"un.Clean(value, self.process, x_t, t), or pass the network to un.Denoiser(network, process)"
        )

    return checked_forward


def inner_denoisers(denoiser: nn.Module) -> list[AnyDenoiser]:
    """The denoisers among the parts of a module; those inside of them are theirs."""
    found: list[AnyDenoiser] = []
    for part in denoiser.children():
        found += [part] if isinstance(part, AnyDenoiser) else inner_denoisers(part)
    return found


def first_parameter(denoiser: nn.Module) -> Tensor | None:
    """The first parameter of floating point, those of processes left out."""
    forward = {id(p) for part in denoiser.modules() if isinstance(part, Process) for p in part.parameters()}
    return next((p for p in denoiser.parameters() if p.dtype.is_floating_point and id(p) not in forward), None)


def has_features(network: nn.Module) -> bool:
    """Whether it says its features and its head apart; a part of that name would not take the time."""
    features, head = getattr(network, "features", None), getattr(network, "head", None)
    return callable(features) and not isinstance(features, nn.Module) and callable(head)


class Denoiser(AnyDenoiser):
    """`Denoiser(network, process, predicts=Posterior)`.

    `predicts` is a kind of prediction, by default the process's own (`predictions.default_kind`); on a product a dict by
    leaf.  `variance` is that of the Gaussian kernel in discrete time, `kernel` how a raw posterior is turned into one.

    With `predicts=Energy`, also on a product, the network returns one number per row, log q_t(x) up to a constant.  Scores
    are then its gradients; ratios of d coordinates with K categories are up to d (K - 1) evaluations of it beside the first.

    With `self_condition=True` the network is asked twice, the second time as `network(x_t, t, previous=...)` with its own
    first estimate of x_0 (see `self_conditioning`).

    `start(output, x_t, t)` is a part that turns the network's output into another one of the same kinds: on top of the
    denoiser of a law that was fitted to the data, say (`networks.start`).

    With a `code` the process noises states that stand for the data (`codes`).
    """

    passes = 1
    in_two_parts = False  # whether the network has `features` and `head`; asked when it is set

    def __init__(
        self,
        network: nn.Module,
        process: Process,
        predicts: Kinds = None,
        variance: variances.Variance | None = None,
        kernel: str = "marginalised",
        self_condition: bool = False,
        start: nn.Module | None = None,
        code: Code | None = None,
    ):
        super().__init__()
        self.network, self.process = network, instance_of(process, Process, "process", "un.Gaussian((2,))")
        self.kinds = resolve_kinds(process, code.kinds(process.base) if predicts is None and code is not None else predicts)
        self.variance, self.kernel = variance, check_kernel(kernel)
        if self_condition and not (code is not None and code.tells_clean):
            check_kinds(process, self.kinds)
        self.start, self.coded = start, None if code is None else instance_of(code, Code, "code", "un.codes.bits(27, (16,))")
        self.self_condition, self.passes = self_condition, 2 if self_condition else 1

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "network":
            self.in_two_parts = has_features(value)

    def forward(self, x_t: Tree, t: Clock, /, **condition: Any) -> Prediction:
        x_t = self.process.state_space.check(x_t, "x_t")
        leaf, process, kinds = first_leaf(x_t), self.process.base, self.kinds
        clock = clock_of(t, process, leaf.shape[0], leaf.device)
        dtype = leaf.dtype if leaf.dtype.is_floating_point else self.clock_dtype
        seen = map_leaves(lambda value: as_told(value, dtype), clock)
        if kinds is Energy:
            return Energy.of_function(self._energy(seen, condition), process, x_t, clock, self.reading)
        return self._meant(self._said(x_t, clock, seen, condition), x_t, clock)

    def together(self, queries: Sequence[Query]) -> list[Prediction]:
        whole = joined([condition for _, _, condition in queries])
        if self.kinds is Energy or whole is None:
            return super().together(queries)
        states, clocks = [], []
        for x_t, t, _ in queries:
            states.append(self.process.state_space.check(x_t, "x_t"))
            leaf = first_leaf(states[-1])
            clocks.append(clock_of(t, self.process.base, leaf.shape[0], leaf.device))
        x_t, clock = join(states), join(clocks)
        leaf = first_leaf(x_t)
        dtype = leaf.dtype if leaf.dtype.is_floating_point else self.clock_dtype
        output = self._said(x_t, clock, map_leaves(lambda value: as_told(value, dtype), clock), whole)
        found, first = [], 0
        for state, time in zip(states, clocks, strict=True):
            last = first + batch_size(state)
            found.append(self._meant(some_rows(output, slice(first, last)), state, time))
            first = last
        return found

    @property
    def code(self) -> Code | None:
        return self.coded

    @property
    def cutoff(self) -> float:
        own = None if self.coded is None else self.coded.earliest(self.process.base)
        return super().cutoff if own is None else own

    @property
    def _by_features(self) -> bool:
        """Whether the head is left to whoever asks for some rows of what it says."""
        return (
            self.in_two_parts
            and not isinstance(self.kinds, dict)
            and self.kinds.lazy
            and self.start is None
            and self.coded is None
        )  # type: ignore

    def _said(self, x_t: Tree, clock: Tree, seen: Tree, condition: Condition) -> Tree:
        """What the network says, or its features."""
        told, shown = given(condition), x_t if self.coded is None else self.coded.seen(x_t)
        if self.passes == 2:
            first = self.typed(first_pass(self.network, shown, seen, told), x_t, clock)
            told = {**told, "previous": first.clean()}
        return (self.network.features if self._by_features else self.network)(shown, seen, **told)  # type: ignore[operator]

    def _meant(self, output: Tree, x_t: Tree, clock: Tree) -> Prediction:
        if self._by_features:
            return self.kinds.of_features(output, self.network.head, self.process.base, x_t, clock)  # type: ignore
        return self.typed(output, x_t, clock)

    @property
    def clock_dtype(self) -> torch.dtype:
        """The precision in which the network is told the time, where the state has none of its own."""
        parameter = next((p for p in self.network.parameters() if p.dtype.is_floating_point), None)
        return torch.get_default_dtype() if parameter is None else parameter.dtype

    def _energy(self, t: Tree, condition: Condition) -> Callable[[Tree, Tensor | None], Tensor]:
        """The network as a function of states, each at the time and condition of one row."""

        def energy(x: Tree, rows: Tensor | None) -> Tensor:
            clock, told = t, condition
            if rows is not None:
                clock, told = map_leaves(lambda v: v[rows], t), rows_of_condition(condition, rows)
            value = self.network(x, clock, **given(told))
            if isinstance(value, Tensor) and tuple(value.shape) != (batch_size(x),):
                raise ValueError(
                    f"the network returned shape {tuple(value.shape)}; an Energy is one number per row, "
                    f"shape ({batch_size(x)},)"
                )
            check_output(value, [(batch_size(x),)])
            return value

        return energy

    @property
    def reading(self) -> OutputReading:
        """What is added to an output of the network."""
        return OutputReading(self.variance, self.kernel, None if self.process.grid is None else self.process.before)  # type: ignore

    def typed(self, output: AnyState, x_t: AnyState, t: Tree) -> Prediction:
        """Give a plain network output its meaning."""
        if self.start is not None:
            output = self.start(output, x_t, t)
        read = None if self.coded is None else self.coded.prediction(output, self.process.base, x_t, t)
        return read if read is not None else _typed(output, self.process.base, self.kinds, x_t, t, self.reading)


class Coded(AnyDenoiser):
    """Any denoiser of states, an oracle say, as a model of the data that a code makes of them."""

    def __init__(self, denoiser: AnyDenoiser, code: Code):
        super().__init__()
        self.inner, self.process = denoiser, denoiser.process
        self.coded = instance_of(code, Code, "code", "un.codes.bits(27, (16,))")

    def forward(self, x_t: AnyState, t: AnyState, /, **condition: Any) -> Prediction:
        return self.inner(x_t, t, **condition)

    @property
    def code(self) -> Code:
        return self.coded

    @property
    def cutoff(self) -> float:
        own = self.coded.earliest(self.process.base)
        return super().cutoff if own is None else own


def clock_of(t: Clock, process: Process, rows: int, device: torch.device) -> Tree:
    """One float64 time per row, or a tree of them that fits the product."""
    if process.leaves:
        fits_times(t, tuple(process.leaves))
        if isinstance(t, dict):
            return {name: clock_of(t[name], leaf, rows, device) for name, leaf in process.leaves.items()}
    return as_times(t, rows, device)


def _typed(output: AnyState, process: Process, kinds: Kinds, x_t: AnyState, t: Tree, reading: OutputReading) -> Prediction:
    if not process.leaves or not isinstance(kinds, dict):
        return kinds.of_output(output, process, x_t, t, reading)
    fits(output, tuple(process.leaves), "the network's output")
    leaves = {}
    for name, leaf in process.leaves.items():
        try:
            leaves[name] = _typed(output[name], leaf, kinds[name], x_t[name], leaf_time(t, name), reading)
        except (TypeError, ValueError) as error:
            raise (TypeError if isinstance(error, TypeError) else ValueError)(f"leaf {name!r}: {error}") from error
    return ProductPrediction(leaves, process, x_t, t)


@torch.no_grad()
def fit_variance(
    denoiser: Denoiser, x0: Tensor, noise: NoiseSource | None = None, condition: Condition | None = None
) -> Denoiser:
    """The denoiser with the optimal reverse variance of its chain, measured on data.

    At each grid time the mean of |x_0 - x_model|^2 per (whitened) coordinate takes the place of Var(x_0 | x_t): among
    variances that depend on time alone it makes the chain's bound smallest (see `variances.OptimalVariance`).
    """
    chain = denoiser.process
    if chain.grid is None or not isinstance(chain.base, Gaussian):
        raise TypeError("an optimal variance is fitted to a Gaussian chain: Denoiser(network, Chain(Gaussian(...), T))")
    x0 = chain.base.space.check(x0, "x0")
    told = checked(condition, len(x0))
    noise = noise if noise is not None else NoiseSource.fresh(x0.shape[0], x0.device)
    values = []
    for i, t in enumerate(chain.grid[1:].to(x0.device)):
        x_t = chain.marginal(x0, t).draw(noise.at("fit", i))
        prediction = denoiser(x_t, t, **told)
        values.append(chain.base.whiten(x0 - prediction.to(Clean).value).double().square().mean())
    clean_variance = variances.fitted(chain.grid[1:], torch.stack(values).cpu())
    variance, twice = variances.OptimalVariance(clean_variance), denoiser.self_condition
    return Denoiser(denoiser.network, chain, denoiser.kinds, variance, denoiser.kernel, twice)
