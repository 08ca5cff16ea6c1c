"""Kernels from ratios or rates: what follows from q_t(y)/q_t(x_t) at one time for a whole step down.

    exact   where the process knows how its kernel is undone (`step_from_ratio`: masking, uniform noise, any law to draw
            afresh from): right for one coordinate however long the step; with true ratios eq:discrete-time-reversal
    leap    elsewhere, where only the ratios of neighbours are known, and for coordinates whose ratios belong to no law:
            stay, or jump once with the rates of x_t

A leap reaches neighbours only.  As a law of x_0 it is made to reach all data: what lies further away has the share that the
noise alone would give it, of second order in the length of the step.
"""

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from unnoise.checks import as_times, may_read, ordered
from unnoise.generators import Local
from unnoise.laws import LOG_ZERO, Categorical, log_of
from unnoise.processes import FiniteProcess
from unnoise.shapes import Clock


@runtime_checkable
class Jumping(Protocol):
    """A prediction that says ratios, hence rates."""

    process: FiniteProcess
    x_t: Tensor
    t: Tensor

    def local(self) -> Local: ...
    def log_ratio(self) -> Tensor: ...


def step_of_ratios(prediction: Jumping, s: Clock) -> Categorical:
    """The kernel from t to s."""
    s = as_times(s, prediction.x_t.shape[0], prediction.x_t.device, "s")
    exact = prediction.process.step_from_ratio(prediction.x_t, prediction.log_ratio(), s, prediction.t)
    if exact is None:
        return hold_then_leap(prediction, s)
    law, holds = exact
    if may_read(holds) and bool(holds.all()):
        return law
    leaping = hold_then_leap(prediction, s).log_probs.to(law.log_probs.dtype)
    return Categorical(torch.where(holds.unsqueeze(-1), law.log_probs, leaping))


def hold_then_leap(prediction: Jumping, s: Clock) -> Categorical:
    """The kernel of frozen rates over a step: stay with probability exp(-(t - s) exit), else jump once.

    Rates and ratios of an imperfect network belong to no clean law, so their exact kernel may have negative entries;
    this one is a law for any positive rates, and tends to the generator's flow as steps shrink.
    """
    s = as_times(s, prediction.x_t.shape[0], prediction.x_t.device, "s")
    ordered(s, prediction.t)
    log_rates = prediction.local().log_rates
    assert log_rates is not None
    log_exit = log_rates.logsumexp(-1, keepdim=True)
    if may_read(log_exit) and bool((log_exit > 200).any()):
        raise ValueError(
            f"the exit rate at t = {prediction.t.max().item():g} is infinite, since alpha is 0 there: start "
            f"before t = 1, use a schedule with alpha_1 > 0, or predict a Posterior"
        )
    hold = -log_exit.exp() * (prediction.t - s).reshape(-1, *[1] * (log_exit.ndim - 1))
    leave = log_of(-torch.expm1(hold))
    leap = leave + log_rates - log_exit
    return Categorical(leap.scatter(-1, prediction.x_t.unsqueeze(-1), hold))


def spread_over_data(prediction: Jumping, law: Categorical) -> Categorical:
    """A kernel to time 0 as a law of x_0: on data alone, and on all of it."""
    process = prediction.process
    log_p = law.log_probs[..., : process.space.size].log_softmax(-1)
    evidence = process.log_evidence(prediction.x_t, None, prediction.t)[..., : process.space.size].to(log_p.dtype)
    evidence = evidence.log_softmax(-1)
    beyond = torch.where(log_p > LOG_ZERO / 2, LOG_ZERO, evidence)
    share = beyond.logsumexp(-1, keepdim=True)
    rest = log_of(-torch.expm1(share.clamp_max(-torch.finfo(share.dtype).tiny)))
    return Categorical(torch.where(log_p > LOG_ZERO / 2, log_p + rest, beyond))
