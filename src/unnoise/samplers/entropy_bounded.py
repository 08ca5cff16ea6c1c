"""Masking: as many coordinates in a call as the network is sure of.

Coordinates drawn together are drawn as if independent.  What that neglects of their dependence is at most the sum of their
entropies less the largest of them.  So a call reveals the surest coordinates up to where that reaches `gamma` nats, and one
at least (Ben-Hamu and others, 2025).  The bound is on what one call neglects if the network's marginals are right; but which
coordinates come first depends on their tokens, so the samples have no stated law: a heuristic, at gamma = 0 as well.
"""

from math import inf

import torch
from torch import Tensor

from unnoise.samplers.base import After
from unnoise.samplers.problem import Problem
from unnoise.samplers.reveal import SURENESS, Revealing, masking_of
from unnoise.samplers.tokens import Tokens


class EntropyBounded(Revealing):
    """`EntropyBounded(gamma=0.1)`: the surest masked coordinates, by "entropy", "confidence" or "margin"."""

    order = None

    def __init__(self, gamma: float = 0.1, tokens: Tokens | None = None, by: str = "entropy"):
        super().__init__(tokens)
        if not gamma >= 0:
            raise ValueError(f"gamma = {gamma:g} must not be negative: the nats of dependence that a call may neglect")
        if by not in SURENESS:
            raise ValueError(f"by = {by!r}: choose from {', '.join(SURENESS)}")
        self.gamma, self.by = gamma, by

    def refuse(self, process):
        why = super().refuse(process)
        if why is None and process.schedule.shape:
            return "EntropyBounded reads the time off the share of coordinates that is masked: use one schedule for all"
        return why

    def calls(self, steps, process):
        return process.space.dimension

    def run(self, problem: Problem, x: Tensor, after: After) -> Tensor:
        process = masking_of(problem.process)
        width, given, seen = process.space.dimension, x, [x]
        u = problem.noise.at("token").uniform(tuple(x.shape[1:])).flatten()
        while True:
            masked = (x == process.mask).reshape(len(x), -1)
            active = masked.any(1).nonzero().squeeze(1)
            if not len(active):
                break
            share = 1 - masked[active].sum(1).double() / width
            t = torch.zeros(len(x), dtype=torch.float64, device=x.device)
            t[active] = process.schedule.time_of_alpha(share)
            prediction = problem.predict_rows(x, t, active)
            index = masked[active].flatten().nonzero().squeeze(1)
            logits = self.logits(prediction, index)
            chosen = self._chosen(logits, index, masked[active])
            places = active[index // width] * width + index % width
            drawn = self.tokens.draw(logits, u[places])
            x = x.reshape(-1).scatter(0, places[chosen], drawn[chosen]).reshape(x.shape)
            seen.append(x)
        problem.info.jumps = (given == process.mask).reshape(len(x), -1).sum(1)
        for i in range(problem.steps):  # a share of the calls for each step of the grid
            after(i, self.told(seen[-(-(i + 1) * (len(seen) - 1) // problem.steps)]))
        return x

    def _chosen(self, logits: Tensor, index: Tensor, masked: Tensor) -> Tensor:
        """Which of the masked coordinates are revealed now."""
        log_p = logits.double().log_softmax(-1)
        entropy = -(log_p.exp() * log_p.clamp_min(-1e4)).sum(-1)
        sure = torch.full((masked.numel(),), -inf, dtype=torch.float64, device=index.device)
        nats = torch.zeros_like(sure).scatter(0, index, entropy).reshape(masked.shape)
        sure = sure.scatter(0, index, SURENESS[self.by](logits).double()).reshape(masked.shape)
        order = sure.argsort(dim=1, descending=True, stable=True)
        ranked = nats.gather(1, order)
        neglected = ranked.cumsum(1) - ranked.cummax(1).values
        first = torch.arange(masked.shape[1], device=index.device) == 0
        taken = torch.zeros_like(masked).scatter(1, order, (neglected <= self.gamma) | first) & masked
        return taken.flatten()[index]
