"""Numbers given a measurement y = A x_0 + noise eps, by guidance without weights: the methods that are known by name.

Each adds a gradient to the score of x_t, taken through the network, of what the measurement would say of its estimate
m = E[x_0 | x_t].  With J = dm/dx_t and r = y - A m the gradient is J^T v,

    "dps"          v = sqrt(k)/noise A^T r/|r|               -sqrt(k)/noise |y - A m|, k measurements (Chung et al. 2023)
    "likelihood"   v = A^T (noise^2 + r_t^2 A A^T)^-1 r      log N(y; A m, noise^2 + r_t^2 A A^T) (Song et al. 2023)
    "moments"      v = A^T (noise^2 + A V A^T)^-1 r          the same with V = Var(x_0 | x_t) (Boys et al. 2023)

where by Tweedie's formula V = sigma^2/alpha J C, C the covariance of the noise (the identity, mostly).  In terms of x_0 a
gradient moves the estimate by sigma^2/alpha C J^T v, which is V A^T (noise^2 + A V A^T)^-1 r for the moments.

"dps" follows the norm of r and not its square, so that what is far is not pulled harder.  Scaled as here it agrees with
the likelihood where r is as large as noise makes it, and means the same in any number of steps (the authors subtract a
multiple of the gradient of |r| in every step, however long).

**How far.**  What a gradient makes of A m should lead it towards y.  By the moments it does: |A V A^T S^-1 r| <= |r| with
S = noise^2 + A V A^T.  "likelihood" takes S from a guess r_t^2: where numbers go together V has an eigenvalue of many r_t^2
(of d numbers that are nearly one, d of them), and A m is led past y by that factor; "dps" asks for no S, and leads past it
by any factor, early on by hundreds.  A flow that overshoots what is left by a factor of more than 2 comes to lie further off
than before, on the other side: steps must be short, or it oscillates and grows, out of all that a network was trained on.
So a gradient is shortened to make no more of A m than `reach` = 2 times |r| (times the strength, if that is above 1).  That
changes the laws of these two methods, which are no posterior's either way; "moments" at strength 1 is never shortened
where V is a covariance.

What is drawn has the law of no posterior: m stands in for x_0, with a spread that is guessed or none.  There is one
exception: for normal data x_0 is normal given x_t, with the moments that "moments" takes, so that its score is that of x_t
given y, and short steps lead to the posterior.  With weights all of them do: as proposals of `un.samplers.Particles` for the
target `un.targets.measured`.

"dps" and "likelihood" cost one gradient of the network in a step, "moments" one for each measurement.
"""

from collections.abc import Callable
from math import inf, isfinite
from typing import Any

import torch
from torch import Tensor

from unnoise.denoiser import AnyDenoiser
from unnoise.guidance.ahead import SpreadOfTime, moved, valid_variance, variance_ahead
from unnoise.guidance.measurements import Measurement
from unnoise.guidance.operators import LinearOperator
from unnoise.guidance.twists import leaf_at
from unnoise.predictions import Clean, Prediction, ProductPrediction, Score
from unnoise.shapes import AnyState
from unnoise.tree import Path, pick, replace

Pulled = Callable[[Tensor], Tensor]  # of v [rows, *shape]: sigma^2/alpha C J^T v


class PosteriorSampling(AnyDenoiser):
    """`PosteriorSampling(model, operator, y, noise, how="likelihood")`, sampled as it is or as a proposal of particles.

    y          one measurement, or the name of a condition that has one for each row
    strength   a factor of the gradient
    variance   of "likelihood": of the data, 1 unless given, or a function of time that says r_t^2
    leaf       the leaf of a product that is measured
    reach      how far a gradient leads, in lengths of y - A m; inf is the method as it was published
    """

    def __init__(
        self,
        denoiser: AnyDenoiser,
        operator: LinearOperator,
        y: Tensor | str,
        noise: float,
        how: str = "moments",
        strength: float = 1.0,
        variance: float | SpreadOfTime | None = None,
        leaf: str | tuple[str, ...] | None = None,
        reach: float = 2.0,
    ):
        super().__init__()
        if how not in WAYS:
            raise ValueError(f"how = {how!r}: choose {', '.join(map(repr, WAYS))}")
        if not isfinite(strength):
            raise ValueError(f"strength = {strength}: it must be a number")
        if not reach > 0:
            raise ValueError(f"reach = {reach}: a gradient leads some way, such as 2; inf is as far as it likes")
        self.denoiser, self.process, self.how, self.strength = denoiser, denoiser.process, how, float(strength)
        self.reach = float(reach)
        self.measurement, self.leaf = Measurement.at_leaf(denoiser.process.base, operator, y, noise, leaf)
        self.variance = valid_variance(variance)

    @property
    def latest(self) -> float:
        """Where alpha = 0 the state says nothing of x_0, and the gradient of its estimate is that of rounding."""
        return min(super().latest, leaf_at(self.process.base, self.leaf, "measurement").latest)

    def forward(self, x_t: AnyState, t: AnyState, /, **condition: Any) -> Prediction:
        measurement, rest = self.measurement.of_rows(condition)
        own, graph = pick(x_t, self.leaf), torch.is_grad_enabled()
        with torch.enable_grad():
            x = own if own.requires_grad else own.detach().requires_grad_()
            prediction = self.denoiser(replace(x_t, self.leaf, x), t, **rest).by_leaf()
            law = _at(prediction, self.leaf).to(Clean)

            def pulled(v: Tensor) -> Tensor:
                (slope,) = torch.autograd.grad(law.value, x, v.to(law.value.dtype), retain_graph=True, create_graph=graph)
                return _in_clean(law, slope)

            seen = law.value if graph else law.value.detach()
            shift = self.strength * WAYS[self.how](measurement, law, seen.double(), pulled, self.variance)
            if self.reach < inf:
                shift = _shortened(measurement, seen.double(), shift, self.reach * max(1.0, abs(self.strength)))
        return _with_clean(prediction, self.leaf, seen.double() + shift)


def _in_clean(law: Clean, slope: Tensor) -> Tensor:
    """By how much a gradient added to the score moves the estimate of x_0: sigma^2/alpha C slope, float64."""
    schedule, wide = law.process.schedule, slope.double()
    factor = schedule.sigma(law.t).square() / schedule.alpha(law.t)
    return law.process.coefficient(factor, wide) * Score.to_linear(law.process, wide)


def _shortened(measurement: Measurement, mean: Tensor, shift: Tensor, reach: float) -> Tensor:
    """The shift, no further than that what it makes of A m has `reach` times the length of r."""
    gap, made = measurement.residual(mean).norm(dim=1), measurement.operator(shift).flatten(1).norm(dim=1)
    share = (reach * gap / made.clamp_min(1e-30)).clamp_max(1.0)
    return shift * share.reshape(-1, *[1] * (shift.ndim - 1))


def _dps(measurement: Measurement, law: Clean, mean: Tensor, pulled: Pulled, variance: Any) -> Tensor:
    gap = measurement.residual(mean)
    length = gap.norm(dim=1, keepdim=True).clamp_min(1e-30)
    return pulled(measurement.back(gap / length * gap.shape[1] ** 0.5 / measurement.noise))


def _likelihood(measurement: Measurement, law: Clean, mean: Tensor, pulled: Pulled, variance: Any) -> Tensor:
    return pulled(measurement.around(mean, variance_ahead(law, variance).flatten(1).amax(1))[1])


def _moments(measurement: Measurement, law: Clean, mean: Tensor, pulled: Pulled, variance: Any) -> Tensor:
    """V A^T (noise^2 + A V A^T)^-1 r, column by column of V A^T; an estimate of no data may make A V A^T not symmetric, or
    negative somewhere."""
    gap = measurement.residual(mean)
    one = torch.eye(gap.shape[1], dtype=gap.dtype, device=gap.device)
    columns = [pulled(measurement.back(row.expand_as(gap))) for row in one]
    inner = torch.stack([measurement.operator(column).flatten(1) for column in columns], 2)
    values, axes = torch.linalg.eigh((inner + inner.mT) / 2)
    weight = axes.mT @ gap.unsqueeze(2) / (measurement.noise**2 + values.clamp_min(0)).unsqueeze(2)
    solved = (axes @ weight).squeeze(2)
    return torch.einsum("k b ..., b k -> b ...", torch.stack(columns), solved)


WAYS = {"dps": _dps, "likelihood": _likelihood, "moments": _moments}


def _at(prediction: Any, path: Path) -> Any:
    for name in path:
        prediction = prediction.leaves[name]
    return prediction


def _with_clean(prediction: Any, path: Path, clean: Tensor) -> Prediction:
    if not path:
        return moved(prediction, clean)
    leaves = {**prediction.leaves, path[0]: _with_clean(prediction.leaves[path[0]], path[1:], clean)}
    return ProductPrediction(leaves, prediction.process, prediction.x_t, prediction.t)
