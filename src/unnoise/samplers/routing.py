"""Routed decoding (Zheng, Yuan, Yu, Kong 2023): draw x_0, then decide for each coordinate whether to believe it.

With a draw a of x_0^k from the raw posterior q(x_0^k | x_t), the reversal of noise with one law p splits by whether x_t is a
(eq:reversal-interpolation-zheng): with beta = 1 - alpha,

    x_t  = a:   (1 - lambda) e_{x_t} + lambda p,    lambda = beta_s (1 - alpha_{t|s}) p(x_t) / (alpha_t + beta_t p(x_t))
    x_t != a:   (1 - mu) e_a + mu (alpha_{t|s} e_{x_t} + (1 - alpha_{t|s}) p),    mu = beta_s / beta_t.

A coordinate is *routed* to x_0 (or stays there) or to noise.  Averaged over a this is the marginalised kernel, since a comes
from the raw posterior: by chance (`by="random"`) the method is the ancestral one, drawn in another way.  A state that noise
never draws comes first: the raw posterior knows it, so a = x_t and lambda = 0, and nothing is masked again.

`by="score"` routes by rank instead of chance.  A coordinate's score is the log-probability, under the raw posterior, of the
token that it would show: a where it is noisy, x_t where it is denoised already.  At s the number of denoised coordinates is

    k_s = round(d alpha_s),      or as many as were clean to begin with, if these are more,

and the k_s best-scoring ones are denoised: those that were noisy take a, those that were denoised keep x_t.  Of the others,
what was denoised is drawn from p, and what was noisy keeps its x_t with probability alpha_{t|s}, as in the kernel.  Under
masking a denoised coordinate is certain and stays; under other noise it falls out when the network doubts it.
This has no law, hence no order.
"""

from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from unnoise.noise import NoiseSource
from unnoise.predictions import Prediction
from unnoise.processes import FixedNoise, Process
from unnoise.samplers.base import OneStep
from unnoise.samplers.categorical_ddim import alpha_beta, fixed_noise_of, over, raw_log_probs, refuse_other_noise
from unnoise.samplers.problem import Problem
from unnoise.samplers.state import Memory, State
from unnoise.samplers.tokens import Tokens
from unnoise.shapes import Bool, Float, Int

By = Literal["score", "random"]


def best(
    score: Float[Tensor, "batch d"], kept: Bool[Tensor, "batch d"], count: Int[Tensor, "batch 1"]
) -> Bool[Tensor, "batch d"]:
    """The `count` largest scores of each row; of equal ones those that were kept before, then the first."""
    order = kept.long().argsort(dim=1, descending=True, stable=True)
    order = order.gather(1, score.gather(1, order).argsort(dim=1, descending=True, stable=True))
    return order.argsort(1) < count


@dataclass(frozen=True)
class RoutingTables:
    """alpha_t, beta_t, beta_s, alpha_{t|s}, mu of every step; by score also how many coordinates are denoised at its end."""

    table: Tensor
    count: Tensor | None


@dataclass(frozen=True)
class Routes(Memory):
    """Which coordinates are denoised, and how many were to begin with."""

    denoised: Bool[Tensor, "batch d"]
    given: Int[Tensor, "batch 1"]


class Routed(OneStep):
    """Denoise the coordinates that the network is surest of (`by="score"`), or those that chance picks (`by="random"`)."""

    def __init__(self, by: str = "score", tokens: Tokens | None = None):
        if by not in get_args(By):
            raise ValueError(f"by = {by!r}: choose 'score' or 'random'")
        self.by, self.tokens = by, tokens or Tokens()
        self.order = 1 if by == "random" and self.tokens.plain else None

    def refuse(self, process: Process) -> str | None:
        why = refuse_other_noise(type(self).__name__, process)
        if why is None and self.by == "score" and process.schedule.shape:  # type: ignore[union-attr]
            return "routing by score counts coordinates, which needs one schedule for all of them: use by='random'"
        return why

    def tables(self, problem: Problem) -> RoutingTables:
        process = fixed_noise_of(problem.process, self)
        alpha, beta = alpha_beta(process, problem.times)
        survives = over(alpha[:-1], alpha[1:], 1.0)  # alpha_{t|s}
        mu = over(beta[1:], beta[:-1], 1.0)
        table = torch.stack([alpha[:-1], beta[:-1], beta[1:], survives, mu]).to(problem.device)
        if self.by != "score":
            return RoutingTables(table, None)
        clean = (process.space.dimension * alpha[1:].flatten() + 0.5).floor().long()
        return RoutingTables(table, clean.to(problem.device))

    def memory(self, problem: Problem, tables: RoutingTables, x: Tensor) -> Routes | None:
        if self.by != "score":
            return None
        denoised = ~problem.process.movable(x).reshape(len(x), -1)
        return Routes(denoised, denoised.sum(1, keepdim=True))

    def stage(
        self,
        problem: Problem,
        tables: RoutingTables,
        prediction: Prediction,
        state: State,
        i: int,
        k: int,
        noise: NoiseSource,
    ) -> State:
        x, process, memory = state.x, fixed_noise_of(problem.process, self), state.memory
        shape = tuple(x.shape[1:])
        log_p = raw_log_probs(prediction, Tokens())
        u = noise.at("token").uniform(shape).flatten()
        a = self.tokens.draw(log_p.flatten(0, -2), u).reshape(x.shape)
        fresh = process.noise.draw(x, noise.at("noise"))
        chance = noise.at("route").uniform(shape)
        if self.by == "random":
            keep, renew = self.shares(process, tables, x, a, i)
            moved = torch.where(chance < renew, fresh, torch.where(chance < renew + keep, x, a))
        else:
            moved, memory = self._by_score(tables, state, a, log_p, fresh, chance, i)
        return state.counted(moved, x).to(moved, memory)

    def shares(self, process: FixedNoise, tables: RoutingTables, x: Tensor, a: Tensor, i: int) -> tuple[Tensor, Tensor]:
        """Of x_t and of p in the kernel given x_0 = a; the rest is that of a."""
        alpha_t, beta_t, beta_s, survives, mu = tables.table[:, i]
        p = process.noise.log_prob(x, torch.float64).exp()
        leave = over(beta_s * (1 - survives) * p, alpha_t + beta_t * p, 0.0)  # lambda
        keep, renew = torch.where(x == a, 1 - leave, mu * survives), torch.where(x == a, leave, mu * (1 - survives))
        return keep, renew

    def _by_score(self, tables, state, a, log_p, fresh, chance, i):
        x, rows = state.x, len(state.x)
        denoised = state.memory.denoised & (x.reshape(rows, -1) < log_p.shape[-1])  # a callback may have masked some again
        shown = torch.where(denoised, x.reshape(rows, -1), a.reshape(rows, -1))
        # a state that noise adds is no category: it is never denoised, and never shown
        score = log_p.reshape(rows, shown.shape[1], -1).gather(-1, shown.unsqueeze(-1)).squeeze(-1)
        chosen = best(score, denoised, torch.maximum(state.memory.given, tables.count[i]))
        survives = tables.table[3, i]
        noisy = torch.where(~denoised.reshape(x.shape) & (chance < survives), x, fresh)
        return torch.where(chosen.reshape(x.shape), shown.reshape(x.shape), noisy), replace(state.memory, denoised=chosen)
