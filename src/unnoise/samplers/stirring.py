"""Motion that leaves the law at a time alone: what may be added to a reverse process without changing a marginal.

A reverse process with the generator L^ carries q_t back to q_s.  So does L^ + K for every generator K with K* q_t = 0 at
all times.  The nouns:

    Reversible(w)     w/2 (L + L^), the forward process and its reversal together.  L* q = dq/dt and L^* q = -dq/dt, so that
                      nothing is left, in any space.  No current flows (eq:detailed-balance-discrete):
                          numbers, angles, spheres      drift w/2 g^2 grad log q, diffusion w g^2                (Langevin)
                          categories, counts, jumps     rates w/2 [R(y, x) + R(x, y) q(y)/q(x)]
    Rotation(A)       drift S grad log q with S = sigma L A L^T sigma antisymmetric: a current S grad q, whose divergence is
                      sum_ij S_ij d_i d_j q = 0.  Where the noise has filled the space, sigma^2 grad log q = -x, it turns by
                      A in the whole time.  On the globe A turns a tangent vector by a right angle, x cross v
    Circulation(w)    categories go round, x -> x + 1 -> ... -> x, each at the rate w/q(x^k) / sum_y 1/q(y^k): the same
                      current everywhere on the way, and rates that add up to w

Their sums are others.  With jumps the flows q(x) R(y, x) and q(y) R(x, y) of an edge, both ways, may have any mean that is
symmetric and homogeneous: then so is C(y, x) q(x), which is the balance.  `mean` chooses

    arithmetic   half the sum, as above
    least        R(y, x) min(1, q(y)/q(x)) where R is symmetric: Metropolis's rule, with the noise as its proposal
    harmonic     twice Barker's rule,  R(y, x) 2 r/(1 + r),  r = q(y)/q(x)
    geometric    R(y, x) sqrt(r)

all but the first 0 where noise goes one way.  Without jumps w may be negative, down to -1: L^ - 1/2 (L + L^) is the
probability flow, and with eta^2 = 1 + w the reverse process has the drift -f + 1/2 (1 + eta^2) g^2 score and the diffusion
eta g.  (For jumps the counterpart is `minimal=True` of the leaps.)

What is added makes errors of steps larger and takes errors of the model back: which of them matters more is a matter of
trial (`samplers.correctors` has the same motions between steps, at network calls of their own).
"""

from abc import ABC, abstractmethod
from math import log
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor

from unnoise.checks import may_read
from unnoise.laws import LOG_ZERO
from unnoise.predictions import Prediction
from unnoise.processes import Process
from unnoise.samplers.leaps import finite, no_rates
from unnoise.shapes import Float, Tree
from unnoise.spaces import Finite, Local

MeanRate = Literal["arithmetic", "least", "harmonic", "geometric"]
ROUNDING = 1e-6  # by which an antisymmetric matrix may miss it, relative to its size


class Stirring(ABC):
    """A motion that leaves q_t alone, made of what a prediction says of q_t."""

    def refuse(self, process: Process) -> str | None:
        """Why this motion does not exist under the process of a leaf; None where it does."""
        return None

    @abstractmethod
    def part(self, prediction: Prediction) -> Local:
        """The data of K at the state and time of a leaf's prediction."""

    def __add__(self, other: "Stirring") -> "Stirring":
        return Stirrings(self, other)


class Stirrings(Stirring):
    """Several motions at once."""

    def __init__(self, *parts: Stirring):
        self.parts = parts

    def refuse(self, process):
        return next((why for why in (part.refuse(process) for part in self.parts) if why), None)

    def part(self, prediction):
        first, *rest = (part.part(prediction) for part in self.parts)
        return sum(rest, first)


def stirred(prediction: Prediction, stir: Stirring | dict[str, Any] | None) -> Tree[Local]:
    """The reverse generator of a prediction, with the motion added; on a product one for every leaf, or a dict by leaf."""
    if stir is None:
        return prediction.local()
    prediction = prediction.by_leaf()
    if prediction.process.leaves:
        each = stir if isinstance(stir, dict) else dict.fromkeys(prediction.process.leaves, stir)
        return {name: stirred(prediction[name], each.get(name)) for name in prediction.process.leaves}  # type: ignore
    return cast(Local, prediction.local()) + cast(Stirring, stir).part(prediction)


def refused(process: Process, stir: Stirring | dict[str, Any] | None) -> str | None:
    """Why a motion does not exist under a process."""
    if isinstance(stir, dict):
        unknown = [name for name in stir if name not in process.leaves]
        if unknown:
            return f"stir names the leaves {unknown}, and {type(process).__name__} has {list(process.leaves)}"
        return next((why for name, own in stir.items() if (why := refused(process.leaves[name], own))), None)
    if process.leaves:
        return next((why for leaf in process.leaves.values() if (why := refused(leaf, stir))), None)
    return None if stir is None else stir.refuse(process)


class Reversible(Stirring):
    """The forward process and its reversal together, `weight` times half of each: Langevin's motion, or balanced jumps."""

    def __init__(self, weight: float = 1.0, mean: str = "arithmetic"):
        if not -1 <= weight < float("inf"):
            raise ValueError(f"weight = {weight:g}: choose it from -1 on, where the probability flow is left")
        if mean not in get_args(MeanRate):
            raise ValueError(f"mean = {mean!r}: choose from {', '.join(get_args(MeanRate))}")
        self.weight, self.mean = weight, cast(MeanRate, mean)

    def refuse(self, process):
        if not process.has_generator:
            return "Reversible motion needs rates, and a chain by matrices has no generator"
        if process.absorbing and self.mean != "arithmetic":
            return f"under {type(process).__name__} noise goes one way, and the mean {self.mean!r} is 0: use 'arithmetic'"
        return None

    def part(self, prediction):
        forward, backward = both_ways(prediction)
        w = self.weight
        if w < 0 and (forward.log_rates is not None or forward.jumps is not None):
            raise ValueError(
                f"weight = {w:g} takes motion away, which jumps cannot have below 0: pass weight >= 0, or for the fewest "
                f"jumps Euler(minimal=True)"
            )
        pull = backward.drift if forward.drift is None else forward.drift + backward.drift
        log_rates = None
        if forward.log_rates is not None:
            log_rates = _scaled(mean_of(self.mean, forward.log_rates, backward.log_rates), w)
        jumps = None
        if forward.jumps is not None and w > 0:
            if self.mean != "arithmetic":
                raise TypeError(f"mean = {self.mean!r} is for jumps between neighbours; to anywhere use 'arithmetic'")
            jumps = ((Local(jumps=forward.jumps) + Local(jumps=backward.jumps)) * (w / 2)).jumps
        diffusion = None if forward.diffusion is None else w * forward.diffusion
        return Local(None if pull is None else w / 2 * pull, diffusion, log_rates, forward.covariance, jumps)


class Rotation(Stirring):
    """A current around the peaks of q: `turn` is an antisymmetric [d, d] matrix, or a number in two dimensions."""

    def __init__(self, turn: float | Tensor = 1.0):
        if isinstance(turn, Tensor):
            square = turn.ndim == 2 and turn.shape[0] == turn.shape[1]
            if not square or float((turn + turn.T).abs().max()) > ROUNDING * float(turn.abs().max()):
                raise ValueError(
                    f"turn, of shape {tuple(turn.shape)}, is not antisymmetric, and would change the marginals: pass "
                    f"(A - A.T) / 2"
                )
            turn = (turn - turn.T).double() / 2
        self.turn = turn

    def refuse(self, process):
        if process.even_diffusion:
            return process.state_space.no_turn(self.turn)
        return (
            f"a Rotation needs a diffusion that is the same at every state, and {type(process).__name__} does not say that "
            f"it has one (even_diffusion = True)"
        )

    def part(self, prediction):
        """The drifts of both ways together are a grad log q, a = L g^2 L^T: L^-1 of it, over g^2, is L^T grad log q."""
        forward, backward = both_ways(prediction)
        process, x, a = prediction.process, prediction.x_t, forward.diffusion
        pull = backward.drift if forward.drift is None else forward.drift + backward.drift
        sigma = process.coefficient(process.schedule.sigma(prediction.t), x).to(pull.dtype)
        white = pull if forward.covariance is None else forward.covariance.whiten(pull)
        slope = sigma * white / torch.where(a > 0, a, 1.0)  # without diffusion nothing is known of it, nor turned
        turned = (sigma * process.state_space.turned(slope, x, self.turn)).to(pull.dtype)
        return Local(turned if forward.covariance is None else forward.covariance.colour(turned))


class Circulation(Stirring):
    """Each coordinate goes round its categories, upwards or with a negative `rate` downwards."""

    def __init__(self, rate: float = 1.0):
        if not 0 < abs(rate) < float("inf"):
            raise ValueError(f"rate = {rate:g}: choose the sum of the rates around the cycle, not 0 and finite")
        self.rate = rate

    def refuse(self, process):
        if process.absorbing:
            return f"under {type(process).__name__} a category that is known tells of no other, and no cycle is closed"
        return no_rates("Circulation turns", process)

    def part(self, prediction):
        own = finite(prediction)
        x, space = own.x_t, cast(Finite, own.process.state_space)
        valid = torch.ones(*space.shape, space.size, dtype=torch.bool, device=x.device)
        valid = valid if space.sizes is None else cast(Tensor, space.valid(x.device))
        itself = torch.nn.functional.one_hot(x, space.size).bool()
        known = own.process.log_rates_into(x, own.t) > LOG_ZERO / 2
        if may_read(x) and not bool((known | itself | ~valid).all()):
            raise ValueError(
                "a Circulation needs the ratios of all categories, and noise does not lead from each of them to each other: "
                "use Reversible()"
            )
        log_ratio = torch.where(itself, 0.0, own.log_ratio())
        share = torch.where(valid, -log_ratio, LOG_ZERO).log_softmax(-1)  # of 1/q(y^k)
        log_rate = share.gather(-1, x.unsqueeze(-1)) + log(abs(self.rate))
        sizes = space.size if space.sizes is None else space.sizes.to(x.device)
        to = ((x + (1 if self.rate > 0 else -1)) % sizes).unsqueeze(-1)
        empty = torch.full_like(share, LOG_ZERO)
        return Local(log_rates=empty.scatter(-1, to, log_rate).masked_fill(itself, LOG_ZERO))


def both_ways(prediction: Prediction) -> tuple[Any, Any]:
    """The data of the forward generator and of its reversal, at the same state and time."""
    process, t = prediction.process, prediction.t
    forward = process.local(prediction.x_t, process.before(t) if process.by_generator else t)  # type: ignore[operator]
    return forward, prediction.local()


def mean_of(mean: MeanRate, first: Float[Tensor, "*shape"], second: Tensor) -> Float[Tensor, "*shape"]:
    """The logarithm of a mean of two rates."""
    first, second = first.to(dtype := torch.promote_types(first.dtype, second.dtype)), second.to(dtype)
    if mean == "arithmetic":
        return torch.logaddexp(first, second) - log(2)
    value = torch.minimum(first, second)
    if mean == "harmonic":
        value = first + second - torch.logaddexp(first, second) + log(2)
    if mean == "geometric":
        value = (first + second) / 2
    return torch.where(torch.minimum(first, second) > LOG_ZERO / 2, value, LOG_ZERO)


def _scaled(log_rates: Tensor, weight: float) -> Tensor:
    if not weight:
        return torch.full_like(log_rates, LOG_ZERO)
    return torch.where(log_rates > LOG_ZERO / 2, log_rates + log(weight), LOG_ZERO)
