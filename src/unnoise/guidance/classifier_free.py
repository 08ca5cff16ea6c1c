"""Classifier-free guidance: towards the condition and away from what is predicted without it.

    prediction = combine([conditional, other], [g, 1 - g])

Scores of numbers and log-ratios of counts are summed with these weights.  A posterior of categories is normalised again, so
that the rate of reveals stays that of the process and only destinations change ("column-normalised"); in ratios or rates the
same combination scales the rate of a jump as well, by Z = sum_v c(v)^g u(v)^(1 - g), which for g > 1 reveals too early.
Leaves of a product are combined each with its own weight, or all with one.

Both sides are asked for in one evaluation of the network, of twice as many rows.

No choice of g but 0 and 1 samples p_c^g p_u^(1-g): that is what `un.targets.geometric` with particles is for.
"""

from collections.abc import Mapping
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from unnoise.checks import leaf_time
from unnoise.denoiser import AnyDenoiser
from unnoise.guidance.given import without
from unnoise.guidance.hidden import Hidden
from unnoise.predictions import Clean, Prediction, ProductPrediction, combine
from unnoise.predictions.continuous import ContinuousPrediction
from unnoise.shapes import AnyState
from unnoise.tree import batch_size, first_leaf

Weight = float | Mapping[str, float]


class ClassifierFree(AnyDenoiser):
    """`ClassifierFree(denoiser, 2.0)`: weight 1 is the conditional model, 0 the unconditional one.

    weight     a number, or on a product a dict by leaf (leaves that are not named have 1)
    interval   times within which the weight holds; elsewhere it is 1
    rescale    of numbers: the share, from 0 to 1, to which the guided estimate of x_0 is brought to the spread of the
               conditional one, row by row
    weaker     the other model: a denoiser that is told the same, such as an earlier state of the training (autoguidance);
               by default the denoiser itself, told nothing
    instead    what "nothing" is, by name, where it is not -1 and NaN (see `guidance.given`)
    hidden     what the other side is not shown of the state itself, of models that know some of its columns by their being
               there (see `guidance.hidden`)
    """

    def __init__(
        self,
        denoiser: AnyDenoiser,
        weight: Weight = 1.0,
        interval: tuple[float, float] = (0.0, 1.0),
        rescale: float = 0.0,
        weaker: AnyDenoiser | None = None,
        instead: Mapping[str, Any] | None = None,
        hidden: Hidden | None = None,
    ):
        super().__init__()
        low, high = interval
        if not 0 <= low <= high <= 1:
            raise ValueError(f"interval = {interval}: times lie in [0, 1], the lower first")
        if not 0 <= rescale <= 1:
            raise ValueError(f"rescale = {rescale:g}: a share lies in [0, 1]")
        if weaker is not None and weaker.process.base is not denoiser.process.base:
            raise ValueError("the weaker model has a process of its own: make both with one process object")
        if weaker is not None and hidden is not None:
            raise ValueError("weaker is told and shown the same as the model: leave hidden out, or weaker")
        self.denoiser, self.process, self.weaker, self.hidden = denoiser, denoiser.process, weaker, hidden
        self.weight, self.interval, self.rescale, self.instead = weight, (low, high), float(rescale), dict(instead or {})
        self._check_leaves()

    def _check_leaves(self) -> None:
        for weight in self.weight.values() if isinstance(self.weight, Mapping) else [self.weight]:
            if not isfinite(weight):
                raise ValueError(f"weight = {weight}: it must be a number, such as 2")
        if isinstance(self.weight, Mapping):
            unknown_names = sorted(set(self.weight) - set(self.process.base.leaves))
            if unknown_names:
                raise ValueError(f"weight names {unknown_names}; the leaves are {sorted(self.process.base.leaves)}")

    @property
    def passes(self) -> int:
        return self.denoiser.passes + (self.weaker or self.denoiser).passes

    def forward(self, x_t: AnyState, t: AnyState, /, **condition: Any) -> Prediction:
        if self.weaker is None and self.hidden is None and not condition and not self.instead:
            raise ValueError(
                "classifier-free guidance has no condition to lead towards: pass condition={...} to un.sample, or weaker=..."
            )
        if self.weaker is not None:
            return self._guided(self.denoiser(x_t, t, **condition), self.weaker(x_t, t, **condition), t)
        untold = without(condition, self.instead, batch_size(x_t), first_leaf(x_t).device)
        if self.hidden is None:
            conditional, other = self.denoiser.together([(x_t, t, condition), (x_t, t, untold)])
            return self._guided(conditional, other, t)
        conditional, other = self.denoiser.together([(x_t, t, condition), self.hidden.query(x_t, t, untold)])
        return self._guided(conditional, self.hidden.at(other, conditional), t)

    def _guided(self, conditional: Prediction, other: Prediction, t: Any) -> Prediction:
        if isinstance(conditional, ProductPrediction) and isinstance(other, ProductPrediction):
            leaves = {
                name: self._leaf(leaf, other.leaves[name], self._weight_of(name), leaf_time(t, name))
                for name, leaf in conditional.leaves.items()
            }
            return ProductPrediction(leaves, conditional.process, conditional.x_t, conditional.t)
        return self._leaf(conditional, other, self._weight_of(None), t)

    def _weight_of(self, name: str | None) -> float:
        if isinstance(self.weight, Mapping):
            return float(self.weight.get(name, 1.0)) if name is not None else 1.0
        return float(self.weight)

    def _leaf(self, conditional: Prediction, other: Prediction, weight: float, t: Any) -> Prediction:
        if weight == 1:
            return conditional
        guided = combine([conditional, other], self._weights(weight, t))
        if self.rescale and isinstance(conditional, ContinuousPrediction):
            guided = self._rescaled(guided, conditional)
        return guided

    def _weights(self, weight: float, t: Any) -> list[Any]:
        if self.interval == (0.0, 1.0):
            return [weight, 1 - weight]
        low, high = self.interval
        t = first_leaf(t)
        g = torch.where((t >= low) & (t <= high), weight, 1.0)
        return [g, 1 - g]

    def _rescaled(self, guided: Any, conditional: Any) -> Prediction:
        """x_0 with, to a share, the standard deviation over a row's coordinates that the conditional estimate has."""
        ours, theirs = guided.to(Clean), conditional.to(Clean).value
        ratio = _spread_of(theirs) / _spread_of(ours.value).clamp_min(1e-12)
        factor = self.rescale * ratio + (1 - self.rescale)
        return ours.with_value(ours.value * factor).to(type(guided))


def _spread_of(x: Tensor) -> Tensor:
    return x.flatten(1).std(1, correction=0).reshape(-1, *[1] * (x.ndim - 1))
