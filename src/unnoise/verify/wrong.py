"""Wrong networks: an oracle's output plus a fixed random function of (x_t, t)."""

from typing import Any

import torch
from torch import Tensor

from unnoise.denoiser import AnyDenoiser, base_process
from unnoise.generators.kolmogorov import code, enumerable
from unnoise.noise import Noise as NoiseSource
from unnoise.oracles import Oracle
from unnoise.predictions import ContinuousPrediction, Prediction, ProductPrediction, Rates, Ratio, RawPosterior
from unnoise.shapes import Tree


class Perturbed(AnyDenoiser):
    """The oracle's prediction + scale * (A(x_t) + B(x_t) t) on finite spaces, a smooth wave on Euclidean ones.

    Errors of ratios and rates fade like 1 - t: under noise with alpha_1 = 0 the rates are unbounded at t = 1, and the bound
    of a network whose error did not fade there would be infinite.
    """

    def __init__(self, oracle: Oracle, scale: float, seed: int):
        super().__init__()
        self.process, self.kinds = oracle.process, oracle.kinds
        self.oracle, self.scale, self.seed = oracle, scale, seed

    def forward(self, x_t: Tree, t: Tree, **condition: Any) -> Prediction:
        return self._perturb(self.oracle(x_t, t, **condition), x_t, NoiseSource(self.seed, 1))

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


def _rows(t: Tensor, like: Tensor) -> Tensor:
    return t.reshape(-1, *[1] * (like.ndim - 1))
