"""A denoiser: network + process + what the network's numbers mean.

A network is any module with `forward(x, t, **condition)` that returns a plain tensor (a dict of them on a product); t is
forward time, one entry per row, or a dict with one entry per leaf where leaves are at different times.  If it also has
methods `features(x, t, **condition)` and `head(h)`, losses and samplers apply the head only to the rows they need; a part
(an `nn.Module`) called `features` is something else.

An oracle, a guided denoiser and an EMA copy are denoisers too: all that is asked of one is `process` and
`forward(x_t, t) -> Prediction`.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from unnoise.checks import as_times, fits, fits_times, leaf_time
from unnoise.noise import NoiseSource
from unnoise.predictions import (
    Clean,
    ContinuousPrediction,
    CountPrediction,
    Energy,
    FinitePrediction,
    Intensity,
    Posterior,
    Prediction,
    ProductPrediction,
    RawPosterior,
    Remaining,
    Transition,
    variances,
)
from unnoise.predictions.finite import check_kernel
from unnoise.processes import Chain, FiniteProcess, Gaussian, Process, Product, Thinning
from unnoise.self_conditioning import check_kinds, estimate, first_pass
from unnoise.shapes import Tree
from unnoise.tree import batch_size, first_leaf, map_leaves

Kinds = Any  # a prediction type, None for the default, or on a product a dict of these by leaf


class AnyDenoiser(nn.Module):
    """What bounds, samplers and likelihoods ask for."""

    process: Process
    kinds: Any = None  # the prediction type of every leaf, None where it is not known beforehand
    passes: int = 1  # evaluations of the network in a call

    @abstractmethod
    def forward(self, x_t: Tree, t: Tree, **condition: Any) -> Prediction: ...

    @property
    def dtype(self) -> torch.dtype:
        """Of its parameters, the process's own left out; float64 where it has none."""
        first = self._parameter()
        return torch.float64 if first is None else first.dtype

    @property
    def device(self) -> torch.device:
        """Of its parameters, the process's own left out; the CPU where it has none."""
        first = self._parameter()
        return torch.device("cpu") if first is None else first.device

    def _parameter(self) -> nn.Parameter | None:
        own = {id(p) for p in self.process.parameters()}
        return next((p for p in self.parameters() if p.dtype.is_floating_point and id(p) not in own), None)


def rows_of(condition: dict[str, Any], rows: Tensor, count: int) -> dict[str, Any]:
    """The share of some rows of a batch of `count` in its condition; what has no entry per row stays as it is."""
    return {
        name: value[rows] if isinstance(value, Tensor) and value.ndim and len(value) == count else value
        for name, value in condition.items()
    }


def base_process(process: Process) -> Process:
    return process.process if isinstance(process, Chain) else process


def resolve_kinds(process: Process, predicts: Kinds) -> Any:
    """The prediction type of every leaf: as named, else `Clean` for numbers, `Posterior` for categories, `Remaining` (under
    immigration `Intensity`) for counts."""
    if predicts is Energy:
        return Energy
    process = base_process(process)
    if isinstance(process, Product):
        if predicts is not None and not isinstance(predicts, dict):
            raise TypeError(
                f"predicts = {predicts} on a product: pass a dict with a kind for each of {process.names}, or Energy"
            )
        named = predicts or {}
        joint = [name for name, kind in named.items() if kind is Energy]
        if joint:
            raise TypeError(f"predicts names Energy for {joint}, but it is one number for all leaves: pass predicts=Energy")
        unknown = [name for name in named if name not in process.names]
        if unknown:
            raise ValueError(f"predicts names {unknown}; the leaves are {list(process.names)}")
        return {name: resolve_kinds(leaf, named.get(name)) for name, leaf in process.leaves.items()}
    if isinstance(process, Thinning):
        return _count_kind(process, predicts)
    finite = isinstance(process, FiniteProcess)
    kind = predicts or (Posterior if finite else Clean)
    family = FinitePrediction if finite else ContinuousPrediction
    if not (isinstance(kind, type) and issubclass(kind, family)):
        name = kind.__name__ if isinstance(kind, type) else repr(kind)
        choice = "Posterior, RawPosterior, Ratio, Rates" if finite else "Clean, Noise, Score, Velocity, Flow"
        raise TypeError(f"predicts = {name} does not fit {type(process).__name__}: choose {choice} ...")
    if not process.has_generator and not issubclass(kind, Posterior | RawPosterior | Transition):
        raise TypeError(
            f"predicts = {kind.__name__} speaks of rates, but a chain by matrices has no generator: "
            f"choose Posterior, RawPosterior or Transition"
        )
    return kind


def _count_kind(process: Thinning, predicts: Kinds) -> Any:
    kind = predicts or (Remaining if process.pure_death else Intensity)
    fits_family = isinstance(kind, type) and issubclass(kind, CountPrediction)
    if not fits_family or (kind is Remaining and not process.pure_death):
        name = kind.__name__ if isinstance(kind, type) else repr(kind)
        choice = "Remaining, Intensity or CountRatio" if process.pure_death else "Intensity or CountRatio"
        raise TypeError(
            f"predicts = {name} does not fit Thinning with immigration = {process.immigration:g}: choose {choice}"
        )
    return kind


class Denoiser(AnyDenoiser):
    """`Denoiser(network, process, predicts=Posterior)`.

    `variance` is that of the Gaussian kernel in discrete time, `kernel` how a raw posterior is turned into one.

    With `predicts=Energy`, also on a product, the network returns one number per row, log q_t(x) up to a constant.  Scores
    are then its gradients; ratios of d coordinates with K categories are up to d (K - 1) evaluations of it beside the first.

    With `self_condition=True` the network is asked twice, the second time as `network(x_t, t, previous=...)` with its own
    first estimate of x_0 (see `self_conditioning`).
    """

    def __init__(
        self,
        network: nn.Module,
        process: Process,
        predicts: Kinds = None,
        variance: variances.Variance | None = None,
        kernel: str = "marginalised",
        self_condition: bool = False,
    ):
        super().__init__()
        self.network, self.process = network, process
        self.kinds = resolve_kinds(process, predicts)
        self.variance, self.kernel = variance, check_kernel(kernel)
        if self_condition:
            check_kinds(self.kinds)
        self.self_condition, self.passes = self_condition, 2 if self_condition else 1

    def forward(self, x_t: Tree, t: Tree, **condition: Any) -> Prediction:
        x_t = self.process.state_space.check(x_t, "x_t")
        leaf = first_leaf(x_t)
        clock = clock_of(t, base_process(self.process), leaf.shape[0], leaf.device)
        dtype = leaf.dtype if leaf.dtype.is_floating_point else self.clock_dtype
        return self.evaluate(x_t, clock, map_leaves(lambda value: value.to(dtype), clock), condition)

    @property
    def clock_dtype(self) -> torch.dtype:
        """The precision in which the network is told the time, where the state has none of its own."""
        parameter = next((p for p in self.network.parameters() if p.dtype.is_floating_point), None)
        return torch.get_default_dtype() if parameter is None else parameter.dtype

    def evaluate(self, x_t: Tree, clock: Tree, seen: Tree, condition: dict[str, Any]) -> Prediction:
        """`forward` on states and times that are known to be right: `seen` is the clock in the network's precision."""
        if self.passes == 2:
            first = self.typed(first_pass(self.network, x_t, seen, condition), x_t, clock)
            condition = {**condition, "previous": estimate(first)}
        if self.kinds is Posterior and has_features(self.network):
            features = self.network.features(x_t, seen, **condition)  # type: ignore[operator]
            return Posterior(features, base_process(self.process), x_t, clock, head=self.network.head)  # type: ignore
        if self.kinds is Energy:
            return Energy(self._energy(seen, condition), base_process(self.process), x_t, clock, self.variance)
        return self.typed(self.network(x_t, seen, **condition), x_t, clock)

    def _energy(self, t: Tree, condition: dict[str, Any]) -> Callable[[Tree, Tensor | None], Tensor]:
        """The network as a function of states, each at the time and condition of one row."""

        def energy(x: Tree, rows: Tensor | None) -> Tensor:
            clock, given = t, condition
            if rows is not None:
                clock = map_leaves(lambda v: v[rows], t)
                given = map_leaves(lambda v: v[rows] if isinstance(v, Tensor) else v, condition)
            value = self.network(x, clock, **given)
            if isinstance(value, Tensor) and tuple(value.shape) != (batch_size(x),):
                raise ValueError(
                    f"the network returned shape {tuple(value.shape)}; an Energy is one number per row, "
                    f"shape ({batch_size(x)},)"
                )
            _check_output(value, [(batch_size(x),)])
            return value

        return energy

    def typed(self, output: Tree, x_t: Tree, t: Tree) -> Prediction:
        """Give a plain network output its meaning."""
        if self.kinds is Energy:
            raise TypeError("an Energy is a function of the state: call the denoiser, which asks the network where it must")
        return _typed(output, base_process(self.process), self.kinds, x_t, t, self)

    def before(self, t: Tensor) -> Tensor:
        if not isinstance(self.process, Chain):
            raise TypeError("a prediction tied to a grid pair (s, t) needs a chain: Denoiser(network, Chain(process, T))")
        return self.process.before(t)


def has_features(network: nn.Module) -> bool:
    """Whether it says its features and its head apart; a part of that name would not take the time."""
    features = getattr(network, "features", None)
    return callable(features) and not isinstance(features, nn.Module) and hasattr(network, "head")


def clock_of(t: Tree, process: Process, rows: int, device: torch.device) -> Tree:
    """One float64 time per row, or a tree of them that fits the product."""
    if isinstance(process, Product):
        fits_times(t, process.names)
        if isinstance(t, dict):
            return {name: clock_of(t[name], leaf, rows, device) for name, leaf in process.leaves.items()}
    return as_times(t, rows, device)


def _typed(output: Tree, process: Process, kinds: Any, x_t: Tree, t: Tree, denoiser: Denoiser) -> Prediction:
    if isinstance(process, Product):
        fits(output, process.names, "the network's output")
        leaves = {
            name: _typed(output[name], leaf, kinds[name], x_t[name], leaf_time(t, name), denoiser)
            for name, leaf in process.leaves.items()
        }
        return ProductPrediction(leaves, process, x_t, t)
    grid = {"s": denoiser.before(t)} if kinds.tied_to_grid else {}
    if isinstance(process, Gaussian):
        extra = None
        if isinstance(output, tuple):
            if len(output) != 2:
                raise ValueError(f"the network returned {len(output)} outputs; expected a tensor, or a pair (prediction, v)")
            output, extra = output
        expected: tuple = tuple(x_t.shape)
        _check_output(output, [expected])
        return kinds(output, process, x_t, t, denoiser.variance, extra, **grid)
    if isinstance(process, Thinning):
        _check_output(output, [tuple(x_t.shape) if kinds.entries == 1 else (*x_t.shape, kinds.entries)])
        return kinds(output, process, x_t, t)
    assert isinstance(process, FiniteProcess)
    sizes = [process.state_space.size] if kinds.tied_to_grid else [process.space.size]
    if not issubclass(kinds, Posterior | RawPosterior):
        sizes.append(process.state_space.size)
    _check_output(output, [(*x_t.shape, size) for size in sizes])
    options = {"kernel": denoiser.kernel} if issubclass(kinds, RawPosterior) else {}
    return kinds(output, process, x_t, t, **grid, **options)


def _check_output(output: Tree, expected: list[tuple]) -> None:
    if not isinstance(output, Tensor):
        raise TypeError(f"the network returned a {type(output).__name__}; it must return a plain tensor")
    if tuple(output.shape) not in expected:
        raise ValueError(f"the network returned shape {tuple(output.shape)}; expected {expected[0]}")
    if not output.dtype.is_floating_point:
        raise TypeError(f"the network returned dtype {output.dtype}; it must return floating point numbers")


@torch.no_grad()
def fit_variance(denoiser: Denoiser, x0: Tensor, noise: NoiseSource | None = None, **condition: Any) -> Denoiser:
    """The denoiser with the optimal reverse variance of its chain, measured on data.

    At each grid time the mean of |x_0 - x_model|^2 per (whitened) coordinate takes the place of Var(x_0 | x_t): among
    variances that depend on time alone it makes the chain's bound smallest (see `variances.OptimalVariance`).
    """
    chain = denoiser.process
    if not (isinstance(chain, Chain) and isinstance(chain.process, Gaussian)):
        raise TypeError("an optimal variance is fitted to a Gaussian chain: Denoiser(network, Chain(Gaussian(...), T))")
    x0 = chain.space.check(x0, "x0")
    noise = noise if noise is not None else NoiseSource.fresh(x0.shape[0], x0.device)
    values = []
    for i, t in enumerate(chain.grid[1:].to(x0.device)):
        x_t = chain.marginal(x0, t).draw(noise.at("fit", i))
        prediction = denoiser(x_t, t, **condition)
        values.append(chain.process.whiten(x0 - prediction.to(Clean).value).double().square().mean())
    clean_variance = variances.fitted(chain.grid[1:], torch.stack(values).cpu())
    variance, twice = variances.OptimalVariance(clean_variance), denoiser.self_condition
    return Denoiser(denoiser.network, chain, denoiser.kinds, variance, denoiser.kernel, twice)
