"""Wrong networks: an oracle's output plus a fixed random function of (x_t, t)."""

from typing import Any

import torch
from torch import Tensor

from unnoise.denoiser import AnyDenoiser, base_process
from unnoise.generators.kolmogorov import code, enumerable
from unnoise.noise import NoiseSource
from unnoise.oracles import Oracle
from unnoise.predictions import (
    ContinuousPrediction,
    CountPrediction,
    CountRatio,
    Energy,
    Prediction,
    ProductPrediction,
    Rates,
    Ratio,
    RawPosterior,
)
from unnoise.shapes import Tree
from unnoise.spaces import Euclidean, tree_leaves
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

    def forward(self, x_t: Tree, t: Tree, /, **condition: Any) -> Prediction:
        prediction = self.oracle(x_t, t, **condition)
        if isinstance(prediction, Energy):
            return self._perturb_energy(prediction)
        return self._perturb(prediction, x_t, NoiseSource(self.seed, 1))

    def _perturb_energy(self, prediction: Energy) -> Energy:
        exact, t = prediction.function, prediction.t
        phase = NoiseSource(self.seed, 1).at("phase").uniform().item() * 6

        def wrong(x: Tree, rows: Tensor | None) -> Tensor:
            value, clock = exact(x, rows), t if rows is None else t[rows]
            state, jumps = torch.zeros_like(clock, dtype=torch.int64), False
            for path, space in tree_leaves(prediction.process.state_space):
                leaf = pick(x, path).reshape(len(clock), -1)
                if isinstance(space, Euclidean):
                    value = value + self.scale * torch.sin(2 * leaf + 3 * clock.unsqueeze(1) + phase).sum(1)
                else:
                    state, jumps = _hashed(state, leaf), True
            return value + self.scale * (1 - clock) * self._table(value, state, clock) if jumps else value

        return Energy(wrong, prediction.process, prediction.x_t, prediction.t)

    def _perturb(self, prediction: Prediction, x_t: Tree, source: NoiseSource) -> Prediction:
        if isinstance(prediction, ProductPrediction):
            leaves = {name: self._perturb(leaf, x_t, source.at(name)) for name, leaf in prediction.leaves.items()}
            return ProductPrediction(leaves, prediction.process, prediction.x_t, prediction.t)
        options: dict[str, Any] = {"s": prediction.s} if prediction.tied_to_grid else {}  # type: ignore[attr-defined]
        if isinstance(prediction, RawPosterior):
            options["kernel"] = prediction.kernel
        value = prediction.value  # type: ignore[attr-defined]
        kind: Any = type(prediction)
        if isinstance(prediction, ContinuousPrediction):
            phase = source.at("phase").uniform().item() * 6
            wave = torch.sin(2 * prediction.x_t + 3 * _rows(prediction.t, value) + phase)
            return kind(value + self.scale * wave, prediction.process, prediction.x_t, prediction.t, **options)
        if isinstance(prediction, CountPrediction):
            fade = _rows(1 - prediction.t, value) if isinstance(prediction, CountRatio) else 1.0
            state = torch.zeros_like(prediction.t, dtype=torch.int64)
            state = _hashed(state, prediction.x_t.reshape(len(state), -1))
            wrong = value + self.scale * fade * self._table(value, state, prediction.t)
            return kind(wrong, prediction.process, prediction.x_t, prediction.t)
        whole = base_process(self.process).state_space
        space, state = (whole, x_t) if enumerable(whole) else (prediction.process.state_space, prediction.x_t)
        fade = _rows(1 - prediction.t, value) if isinstance(prediction, Ratio | Rates) else 1.0
        wrong = value + self.scale * fade * self._table(value, code(space, state), prediction.t)
        return kind(wrong, prediction.process, prediction.x_t, prediction.t, **options)

    def _table(self, value: Tensor, state: Tensor, t: Tensor) -> Tensor:
        """One random entry per state, the same whenever the state comes again."""
        rows = NoiseSource(self.seed, state)
        shape = tuple(value.shape[1:])
        return rows.at("level").normal(shape) + rows.at("slope").normal(shape) * _rows(t, value)


def _hashed(state: Tensor, leaf: Tensor) -> Tensor:
    """One number per row for whole numbers [rows, d]."""
    for column in leaf.unbind(1):
        state = state * 1_000_003 + column
    return state


def _rows(t: Tensor, like: Tensor) -> Tensor:
    return t.reshape(-1, *[1] * (like.ndim - 1))
