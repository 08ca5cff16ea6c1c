"""Laws made of models and functions, each with what is needed to draw from it (`un.targets`).

    tempered(model, beta)                       p^beta
    geometric(conditional, unconditional, g)    p_c^g p_u^(1 - g)
    product(models, exponents)                  prod_i p_i^{g_i}
    rewarded(model, reward, strength)           p exp(strength reward(x_0))
    restricted(model, allowed)                  p where allowed(x_0), renormalised
    measured(model, operator, y, noise)         p N(y; A x_0, noise^2), numbers given a linear measurement

All up to a constant, Z, whose logarithm `info.particles.estimate()` tells.  A target is a denoiser: sampled by itself it is
plain guidance (scores, logarithms of rates and of posteriors are summed with their exponents), whose law is another one.
`un.sample(target, n, sampler=un.samplers.Particles(64))` draws from the law that is named.

Targets nest: `rewarded(geometric(...), r, 2.0)` is the one times the other.

Under masking with one reveal at a time the weights are exact where the models' conditionals are consistent, as those of an
exact denoiser are.  A network's are not, and the law is then

    E over orders o of  prod_k prod_i p_i(x_{o(k)} | what is revealed before)^{g_i},

up to a constant: a mean over orders of what each order would give, not a power of the model's own mean over orders.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from unnoise.conditions import given
from unnoise.denoiser import AnyDenoiser
from unnoise.guidance.ahead import SpreadOfTime
from unnoise.guidance.measured import Measured
from unnoise.guidance.measurements import Measurement
from unnoise.guidance.operators import LinearOperator
from unnoise.guidance.twists import Ends, Reward, Twist
from unnoise.predictions import combine
from unnoise.samplers.weighed import Said, WeighedDenoiser, target_of
from unnoise.shapes import AnyState, Float, Tree

Function = Callable[[Any], Tensor]


class Powers(WeighedDenoiser):
    """prod_i p_i^{g_i}."""

    def __init__(self, models: Sequence[AnyDenoiser], exponents: Sequence[float]):
        super().__init__()
        if not models or len(models) != len(exponents):
            raise ValueError(f"{len(models)} models and {len(exponents)} exponents: pass one exponent for each model")
        for g in exponents:
            if not abs(float(g)) < float("inf"):
                raise ValueError(f"the exponent {g} is no number")
        if not sum(exponents) > 0:
            raise ValueError(
                f"the exponents {list(exponents)} sum to {sum(exponents):g}: a law at t = 1 needs a sum above 0"
            )
        others = [model for model in models[1:] if model.process.base is not models[0].process.base]
        if others:
            raise ValueError(
                "the models have processes of their own: make all with one process object, so that they share noise"
            )
        self.models, self.process = nn.ModuleList(models), models[0].process
        self.exponents = tuple(float(g) for g in exponents)

    def said(self, x_t: AnyState, t: AnyState, /, **condition: Any) -> Said:
        parts = tuple(model(x_t, t, **condition) for model in self.models)
        plain = len(parts) == 1 and self.exponents[0] == 1
        return Said(parts, parts[0] if plain else combine(parts, list(self.exponents)))


class Twisted(WeighedDenoiser):
    """A target times a factor h of the data."""

    def __init__(self, target: AnyDenoiser, twist: Twist):
        super().__init__()
        self.target, self.twist, self.process = target_of(target), twist, target.process
        why = twist.refuse(self.process.base)
        if why:
            raise TypeError(why)
        self.exponents = self.target.exponents

    def said(self, x_t: AnyState, t: AnyState, /, **condition: Any) -> Said:
        twist, rest = self.twist.of_rows(condition)
        said = self.target.said(x_t, t, **rest)
        log_h, prediction = twist.on_the_way(said.prediction)
        own = [part for part in (said.log_twist, log_h) if part is not None]
        log_twist = torch.stack(own).sum(0) if own else None
        return replace(said, prediction=prediction, log_twist=log_twist, untwisted=said.own)

    def log_factor(self, x0: Tree, condition: dict[str, Any]) -> Float[Tensor, "batch"] | None:
        twist, rest = self.twist.of_rows(condition)
        own, below = twist.at_the_end(x0, given(rest)), self.target.log_factor(x0, rest)
        return own if below is None else own + below


def product(models: Sequence[AnyDenoiser], exponents: Sequence[float] | None = None) -> WeighedDenoiser:
    """prod_i p_i^{g_i}, all exponents 1 unless given."""
    return Powers(list(models), [1.0] * len(models) if exponents is None else list(exponents))


def tempered(model: AnyDenoiser, beta: float) -> WeighedDenoiser:
    """p^beta: sharper for beta > 1, flatter below."""
    return Powers([model], [beta])


def geometric(conditional: AnyDenoiser, unconditional: AnyDenoiser, weight: float) -> WeighedDenoiser:
    """p_c^g p_u^(1 - g): what classifier-free guidance is meant to sample."""
    return Powers([conditional, unconditional], [weight, 1 - weight])


def rewarded(model: AnyDenoiser, reward: Function, strength: float = 1.0, draws: int = 1) -> WeighedDenoiser:
    """p exp(strength r(x_0)); `reward` gives a number for each row of a batch of data."""
    return Twisted(model, Reward(reward, strength, draws))


def restricted(model: AnyDenoiser, allowed: Function | Twist) -> WeighedDenoiser:
    """p on a set: a function that says of each row of data whether it belongs, or a rule (`un.guidance.rules`)."""
    return Twisted(model, allowed if isinstance(allowed, Twist) else Ends(allowed))


def measured(
    model: AnyDenoiser,
    operator: LinearOperator,
    y: Tensor | str,
    noise: float,
    variance: float | SpreadOfTime | None = None,
    leaf: str | tuple[str, ...] | None = None,
) -> WeighedDenoiser:
    """p given y = A x_0 + noise eps; Z is the density of y.  `y` is one measurement, or the name of a condition with one for
    each row; `variance` is how far x_0 is taken to be from its prediction on the way (`guidance.ahead`)."""
    measurement, path = Measurement.at_leaf(model.process.base, operator, y, noise, leaf)
    return Twisted(model, Measured(measurement, path, variance))
