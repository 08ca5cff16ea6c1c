"""Wrong networks: an oracle's output plus a fixed random function of (x_t, t)."""

from functools import singledispatch
from typing import Any, cast

import torch
from torch import Tensor

from unnoise.denoiser import AnyDenoiser
from unnoise.generators.kolmogorov import code, enumerable
from unnoise.noise import NoiseSource
from unnoise.oracles import Oracle
from unnoise.predictions import (
    CloudMixture,
    ContinuousPrediction,
    CountPrediction,
    CountRatio,
    Energy,
    FinitePrediction,
    HeatPrediction,
    MixturePosterior,
    OrthantScore,
    Prediction,
    ProductPrediction,
    Rates,
    Ratio,
    RawPosterior,
    SimplexPrediction,
)
from unnoise.shapes import Clock, Tree
from unnoise.spaces import tree_leaves
from unnoise.tree import pick


class Perturbed(AnyDenoiser):
    """The oracle's prediction + scale * (A(x_t) + B(x_t) t) on finite spaces and counts, a smooth wave on Euclidean ones.

    Errors of ratios and rates fade like 1 - t: under noise with alpha_1 = 0 the rates are unbounded at t = 1, and the bound
    of a network whose error did not fade there would be infinite.  An energy has the sum of such errors added, one wave for
    each number and one entry that fades for the categories and counts together.
    """

    def __init__(self, oracle: Oracle, scale: float, seed: int):
        super().__init__()
        self.process, self.kinds = oracle.process, oracle.kinds
        self.oracle, self.scale, self.seed = oracle, scale, seed

    def forward(self, x_t: Tree, t: Clock, /, **condition: Any) -> Prediction:
        prediction = self.oracle(x_t, t, **condition)
        if isinstance(prediction, Energy):
            return self._perturb_energy(prediction)
        return perturb(prediction, self, x_t, NoiseSource(self.seed, 1))

    def _perturb_energy(self, prediction: Energy) -> Energy:
        exact, t = prediction.function, cast(Tensor, prediction.t)
        phase = NoiseSource(self.seed, 1).at("phase").uniform().item() * 6

        def wrong(x: Tree, rows: Tensor | None) -> Tensor:
            value, clock = exact(x, rows), t if rows is None else t[rows]
            state, jumps = torch.zeros_like(clock, dtype=torch.int64), False
            for path, _ in tree_leaves(prediction.process.state_space):
                leaf = pick(x, path).reshape(len(clock), -1)
                if leaf.dtype.is_floating_point:
                    value = value + self.scale * torch.sin(2 * leaf + 3 * clock.unsqueeze(1) + phase).sum(1)
                else:
                    state, jumps = _hashed(state, leaf), True
            return value + self.scale * (1 - clock) * self.table(value, state, clock) if jumps else value

        return Energy(wrong, prediction.process, prediction.x_t, prediction.t)

    def table(self, value: Tensor, state: Tensor, t: Tensor) -> Tensor:
        """One random entry per state, the same whenever the state comes again."""
        rows = NoiseSource(self.seed, state)
        shape = tuple(value.shape[1:])
        return rows.at("level").normal(shape) + rows.at("slope").normal(shape) * _rows(t, value)


@singledispatch
def perturb(prediction: Prediction, model: Perturbed, x_t: Tree, source: NoiseSource) -> Prediction:
    """The prediction with an error of the model's scale; `x_t` is the whole state.  Open to registration for own kinds."""
    name = type(prediction).__name__
    raise NotImplementedError(f"no wrong network is known for {name}: register unnoise.verify.wrong.perturb for it")


@perturb.register
def _(prediction: ProductPrediction, model: Perturbed, x_t: Tree, source: NoiseSource) -> Prediction:
    leaves = {name: perturb(leaf, model, x_t, source.at(name)) for name, leaf in prediction.leaves.items()}
    return ProductPrediction(leaves, prediction.process, prediction.x_t, prediction.t)


@perturb.register(ContinuousPrediction)
@perturb.register(OrthantScore)
def _(prediction: ContinuousPrediction | OrthantScore, model: Perturbed, x_t: Tree, source: NoiseSource) -> Prediction:
    phase, value = source.at("phase").uniform().item() * 6, prediction.value
    wave = torch.sin(2 * prediction.x_t + 3 * _rows(prediction.t, value) + phase)
    return with_value(prediction, value + model.scale * wave)


@perturb.register
def _(prediction: MixturePosterior, model: Perturbed, x_t: Tree, source: NoiseSource) -> Prediction:
    """A wave of its own for every number."""
    value = prediction.value
    phase = 6 * source.at("phase").uniform((value.shape[-1],))
    wave = torch.sin(2 * prediction.x_t.unsqueeze(-1) + 3 * _rows(prediction.t, value) + phase)
    return with_value(prediction, value + model.scale * wave)


@perturb.register
def _(prediction: HeatPrediction, model: Perturbed, x_t: Tree, source: NoiseSource) -> Prediction:
    """A wave of the state as it lies in the space around it, without its part across."""
    phase, value = source.at("phase").uniform().item() * 6, prediction.value
    wave = torch.sin(2 * prediction.x_t + 3 * _rows(prediction.t, value) + phase)
    return with_value(prediction, value + model.scale * wave)


@perturb.register
def _(prediction: CloudMixture, model: Perturbed, x_t: Tree, source: NoiseSource) -> Prediction:
    """A wave of the state for each number of each cloud."""
    value = prediction.value
    phase = 6 * NoiseSource(model.seed, value[0].numel()).at("phase").uniform().reshape(value.shape[1:])
    state = prediction.x_t.reshape(len(value), -1).sum(1)
    wave = torch.sin(2 * _rows(state, value) + 3 * _rows(prediction.t, value) + phase)
    return with_value(prediction, value + model.scale * wave)


@perturb.register
def _(prediction: SimplexPrediction, model: Perturbed, x_t: Tree, source: NoiseSource) -> Prediction:
    """A wave of each share, another for each part."""
    phase, value = 6 * source.at("phase").uniform(tuple(prediction.value.shape[1:])), prediction.value
    wave = torch.sin(3 * prediction.x_t + 3 * _rows(prediction.t, value) + phase)
    return with_value(prediction, value + model.scale * wave.to(value.dtype))


@perturb.register
def _(prediction: CountPrediction, model: Perturbed, x_t: Tree, source: NoiseSource) -> Prediction:
    value = prediction.value
    fade = _rows(1 - prediction.t, value) if isinstance(prediction, CountRatio) else 1.0
    state = torch.zeros_like(prediction.t, dtype=torch.int64)
    state = _hashed(state, prediction.x_t.reshape(len(state), -1))
    return with_value(prediction, value + model.scale * fade * model.table(value, state, prediction.t))


@perturb.register
def _(prediction: FinitePrediction, model: Perturbed, x_t: Tree, source: NoiseSource) -> Prediction:
    whole, value = model.process.base.state_space, prediction.value
    space, state = (whole, x_t) if enumerable(whole) else (prediction.process.state_space, prediction.x_t)
    fade = _rows(1 - prediction.t, value) if isinstance(prediction, Ratio | Rates) else 1.0
    return with_value(prediction, value + model.scale * fade * model.table(value, code(space, state), prediction.t))


def with_value(prediction: Any, value: Tensor) -> Prediction:
    """The same prediction with another value."""
    options: dict[str, Any] = {"s": prediction.s} if prediction.tied_to_grid else {}
    if isinstance(prediction, RawPosterior):
        options["kernel"] = prediction.kernel
    return type(prediction)(value, prediction.process, prediction.x_t, prediction.t, **options)


def _hashed(state: Tensor, leaf: Tensor) -> Tensor:
    """One number per row for whole numbers [rows, d]."""
    for column in leaf.unbind(1):
        state = state * 1_000_003 + column
    return state


def _rows(t: Tensor, like: Tensor) -> Tensor:
    return t.reshape(-1, *[1] * (like.ndim - 1))
