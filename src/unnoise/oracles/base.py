"""An oracle: a data law whose exact denoiser, decoder, marginals and likelihood are known.

An oracle is a denoiser, so everything that takes one can be run on the truth.  `predicts` chooses what it says; the other
kinds come from its native one (`Velocity`, `Posterior`) by exact conversion; `Energy` is its log-marginal.
"""

from abc import abstractmethod
from typing import Any

from torch import Tensor

from unnoise.denoiser import AnyDenoiser, clock_of
from unnoise.noise import NoiseSource
from unnoise.objectives.decoders import ExactDecoder
from unnoise.predictions import Energy, Kinds, Prediction, ProductPrediction, RawPosterior, resolve_kinds
from unnoise.predictions.finite import Kernel
from unnoise.processes import Process
from unnoise.shapes import AnyState, Clock, Float, Tree
from unnoise.tree import first_leaf, map_leaves


class Oracle(AnyDenoiser):
    """Base of all oracles."""

    def __init__(self, process: Process, predicts: Kinds = None, kernel: Kernel = "marginalised"):
        super().__init__()
        self.process, self.kernel = process, kernel
        self.kinds = resolve_kinds(process, predicts)

    def predicting(self, kinds: Kinds = None, process: Process | None = None, kernel: Kernel = "marginalised"):
        """The same data law seen through other prediction kinds, or on a chain of the same process."""
        other = object.__new__(type(self))
        other.__dict__ = dict(self.__dict__)
        other._modules = dict(self._modules)
        other.process, other.kernel = process or self.process, kernel
        other.kinds = resolve_kinds(other.process, kinds)
        return other

    @abstractmethod
    def native(self, x_t: AnyState, t: AnyState) -> Prediction:
        """The exact `Velocity` / `Posterior` prediction."""

    def forward(self, x_t: Tree, t: Clock, /, **condition: Any) -> Prediction:
        x_t = self.process.state_space.check(x_t, "x_t")
        leaf = first_leaf(x_t)
        process = self.process.base
        clock = clock_of(t, process, leaf.shape[0], leaf.device)
        if self.kinds is Energy:
            return Energy(lambda x, rows: self.log_marginal(x, _at(clock, rows)), process, x_t, clock)
        return self._convert(self.native(x_t, clock), self.kinds)

    def _convert(self, prediction: Prediction, kind: Any) -> Prediction:
        if isinstance(prediction, ProductPrediction):
            leaves = {name: self._convert(leaf, kind[name]) for name, leaf in prediction.leaves.items()}
            return ProductPrediction(leaves, prediction.process, prediction.x_t, prediction.t)
        if kind is type(prediction):
            return prediction
        options: dict[str, Any] = {}
        if kind.tied_to_grid:
            if self.process.grid is None:
                raise TypeError(f"{kind.__name__} belongs to a grid pair: put the oracle on a Chain")
            options["s"] = self.process.before(prediction.t)  # type: ignore[operator]
        if issubclass(kind, RawPosterior):
            options["kernel"] = self.kernel
        return prediction.to(kind, **options)

    @abstractmethod
    def log_prob(self, x0: AnyState) -> Float[Tensor, "batch"]:
        """log q(x_0): the exact likelihood."""

    @abstractmethod
    def log_marginal(self, x_t: AnyState, t: Clock) -> Float[Tensor, "batch"]:
        """log q_t(x_t)."""

    @abstractmethod
    def draw(self, noise: NoiseSource) -> Tree:
        """One example of the data per row."""

    def log_decode(self, x0: AnyState, x_t: AnyState, t: Clock) -> Float[Tensor, "batch"]:
        """log q(x_0 | x_t), jointly over coordinates and leaves."""
        forward = self.process.base.marginal(x0, t).log_prob(x_t)
        return self.log_prob(x0) + forward - self.log_marginal(x_t, t)

    @property
    def decoder(self) -> ExactDecoder:
        return ExactDecoder(self)


def _at(t: Tree, rows: Tensor | None) -> Tree:
    """The times of some rows."""
    return t if rows is None else map_leaves(lambda v: v[rows], t)
