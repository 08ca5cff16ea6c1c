"""Particles: draws from a law that a model and a function name together, with weights that are known.

Each sample has a group of N particles.  They move by a proposal and are weighed by what their steps have left out
(`samplers.proposals`) and by the factor h_t of the target.  Where the weights of a group are worth less than a share of its
particles, it is drawn anew in proportion to them (systematic resampling); at the end one is chosen by its weight.

With w the weights since the last resampling, the product over resamplings of their means in the group is an unbiased
estimate of the normaliser Z of the discretised target, whatever the rule by which groups are resampled; the mean over groups
is one with an error bar.  The law of the samples differs from the target's by O(1/N), the estimate by O(N^(-1/2)).

The factor of the states that a step leads to is known with the next call of the network, and counted then: its logarithm at
the old states is taken back when that of the new ones is put in, so that in the end only log h(x_0) stands.
"""

from copy import copy
from dataclasses import dataclass, field
from math import log, nan
from typing import Any

import torch
from torch import Tensor

from unnoise.checks import as_times
from unnoise.clocks import spread
from unnoise.conditions import tiled
from unnoise.denoiser import AnyDenoiser
from unnoise.processes import Process
from unnoise.samplers.ancestral import Ancestral
from unnoise.samplers.base import After, Sampler
from unnoise.samplers.known_path import KnownPath
from unnoise.samplers.problem import Problem
from unnoise.samplers.proposals import Reveals, one_by_one, proposal_of, refused
from unnoise.samplers.state import Memory
from unnoise.samplers.weighed import Said, target_of
from unnoise.shapes import Bool, Float, Int, Tree
from unnoise.tree import batch_size, first_leaf, leaves, map_leaves, tile
from unnoise.tree import rows as some_rows


@dataclass
class ParticleRecord:
    """What became of the particles; groups come first in every array."""

    log_weight: Float[Tensor, "groups particles"]  # at the end, of the particles as they then are
    log_normaliser: Float[Tensor, "groups"]  # of each group; exp of it is unbiased
    effective: Float[Tensor, "groups steps"]  # of how many particles of equal weight a group was worth, before resampling
    ancestors: list[Int[Tensor, "groups particles"]] = field(default_factory=list)  # after each step, who was in each place
    states: Tree | None = None  # of all, [particles x groups]: the first particle of every group, the second, ...

    @property
    def alive(self) -> Bool[Tensor, "groups"]:
        """Which groups have a particle with any weight; of the others there is no sample."""
        return self.log_normaliser > -torch.inf

    def estimate(self) -> tuple[float, float]:
        """(log of the normaliser, standard error of that) over the groups; no error is known of a single one."""
        top = self.log_normaliser.max()
        if not top.isfinite():
            return float(top), nan
        z = (self.log_normaliser - top).exp()
        n, mean = len(z), z.mean()
        error = float(z.std() / mean / n**0.5) if n > 1 else nan
        return float(top + mean.log()), error

    @classmethod
    def joined(cls, parts: list["ParticleRecord"]) -> "ParticleRecord":
        """Of parts of a run; states and ancestry stay with the parts."""
        weights, normalisers = torch.cat([p.log_weight for p in parts]), torch.cat([p.log_normaliser for p in parts])
        return cls(weights, normalisers, torch.cat([p.effective for p in parts]))


class NoSurvivors(RuntimeError):
    """All particles of a group have weight 0.  `states` holds all particles as they were, `record` their weights."""

    def __init__(self, message: str, states: Tree, record: ParticleRecord | None = None):
        super().__init__(message)
        self.states, self.record = states, record


class Particles(Sampler):
    """`Particles(16)`: each sample is chosen among so many particles.

    `target` is the law to draw from (`un.targets`), by default the denoiser that is sampled, which then proposes with plain
    guidance; with a target, any denoiser of the same process proposes.  `proposal` is the method whose steps are weighed:
    FirstHitting (the default under masking), Ancestral (elsewhere), FromGenerator, or any that says the law of its steps;
    others with one call a step go unweighed, for targets that lead nowhere on the way (`samplers.proposals`).  Groups are
    resampled where their weights are worth less than `share` of their particles: 1 resamples in every step, 0 never.

    A group all of whose particles have weight 0 has no sample, and the run stops there; with `strict=False` it goes on, and
    `info.particles.alive` says of each row that is returned whether it is a sample.

    `known` is (x, fixed): the entries of x where `fixed`, of the rows of the run, are given, and the others drawn given them
    (`samplers.known_path`).
    """

    order = None

    def __init__(
        self,
        particles: int = 16,
        target: AnyDenoiser | None = None,
        proposal: Sampler | None = None,
        share: float = 0.5,
        strict: bool = True,
        known: tuple[Tree, Tree] | None = None,
    ):
        if particles < 1:
            raise ValueError(f"particles = {particles}: a sample is chosen among one at least")
        if not 0 <= share <= 1:
            raise ValueError(f"share = {share:g}: resample where the weights are worth less than a share in [0, 1]")
        self.particles, self.target, self.proposal = particles, target, proposal
        self.share, self.strict, self.known = share, strict, known
        self.held: tuple[str, ...] = ()

    def holding(self, names: list[str]) -> "Particles":
        """The same with these leaves of a product held as they are, at time 0."""
        other = copy(self)
        other.held = (*self.held, *names)
        return other

    def refuse(self, process: Process) -> str | None:
        if self.target is not None and self.target.process.base is not process:
            return "the target and the denoiser that proposes have processes of their own: make both with one process object"
        if self.held and self.proposal is not None and type(self.proposal) is not Ancestral:
            return (
                f"particles hold numbers that are given by the models' own kernels: leave {type(self.proposal).__name__} out"
            )
        return refused(self.proposal, process)

    def calls(self, steps: int, process: Process) -> int | None:
        reveals = self.proposal is None and one_by_one(process)
        return process.space.dimension if reveals else steps

    def run(self, problem: Problem, x: Tree, after: After) -> Tree:
        return ParticleRun(self, problem, x, after).drawn()


@dataclass(frozen=True)
class Particle(Memory):
    """All that belongs to a particle and goes where it goes."""

    x: Tree
    memory: Any
    log_weight: Tensor
    log_twist: Tensor


class ParticleRun:
    """One run: n samples of N particles each, as n N rows in the order [particle, sample]."""

    def __init__(self, method: Particles, problem: Problem, x: Tree, after: After):
        self.method, self.problem, self.after = method, problem, after
        self.n, self.count = batch_size(x), method.particles
        self.target = target_of(method.target or problem.denoiser)
        self.proposer = None if method.target in (None, problem.denoiser) else problem.denoiser
        self.wide = problem.rows(torch.arange(self.n, device=problem.device))
        self.wide.noise = problem.noise.repeated(self.count)
        self.wide.condition = tiled(problem.condition, self.count)
        self.x, self.log_begin = self._begun(x)
        self.known = None if method.known is None else KnownPath(problem, *method.known, self.count)
        if self.known is not None:
            self.x = self.known.put(self.x, 0)
        self.log_z = torch.zeros(self.n, dtype=torch.float64, device=problem.device)
        self.worth: list[Tensor] = []  # after each step, of how many particles of equal weight each group is worth
        self.ancestors: list[Tensor] = []

    def _begun(self, x: Tree) -> tuple[Tree, Tensor]:
        if self.problem.given:
            return tile(x, self.count), torch.zeros(self.n * self.count, dtype=torch.float64, device=self.problem.device)
        dtype = next((leaf.dtype for leaf in leaves(x) if leaf.dtype.is_floating_point), None)
        device, noise = first_leaf(x).device, self.wide.noise.at("prior")
        return self.target.begin(self.problem.process, self.n * self.count, dtype, device, noise)

    def drawn(self) -> Tree:
        proposal = proposal_of(self.method.proposal, self.wide, self.target.exponents, self.x, self.known)
        proposal.held = self.method.held
        state = Particle(self.x, proposal.init(self.x), self.log_begin, torch.zeros_like(self.log_begin))
        for k in range(proposal.steps):
            said = self._asked(state, proposal.time(state.memory, k))
            state = self._twisted(state, said.log_twist)
            move = proposal.move(said, state.x, state.memory, k, self.wide.noise.at("step", k))
            memory = state.memory if move.memory is None else move.memory
            state = Particle(move.x, memory, state.log_weight + numbers(move.log_weight), state.log_twist)
            if k + 1 < proposal.steps:
                state = self._resampled(state, k)
                if not isinstance(proposal, Reveals):
                    self.after(k, self.told(state.x))
        state = self._twisted(state, self.target.log_factor(state.x, dict(self.wide.condition)))
        weights = self._by_group(state.log_weight)
        self.problem.info.particles = self._record(weights, state.x)
        self._refuse_dead(weights, state.x)
        u = self.problem.noise.at("choice").uniform().unsqueeze(1)
        place = torch.searchsorted(weights.softmax(1).cumsum(1), u, right=True).squeeze(1).clamp_max(self.count - 1)
        chosen = some_rows(state.x, place * self.n + torch.arange(self.n, device=place.device))
        if self.problem.steps:
            self.after(self.problem.steps - 1, self.told(chosen))
        return chosen

    def told(self, x: Tree) -> Any:
        return self.method.told(x)

    def _asked(self, state: Particle, t: Any) -> Said:
        """What the target says, and what proposes if that is another denoiser."""
        rows, info = batch_size(state.x), self.problem.info
        clock: Any = map_leaves(lambda time: spread(time, rows), t) if isinstance(t, dict) else None
        if clock is None:
            clock = spread(t, rows) if isinstance(t, Tensor) else as_times(t, rows, self.problem.device)
        said = self.target(state.x, clock, True, **self.wide.condition)
        info.calls, info.rows = info.calls + self.target.passes, info.rows + rows * self.target.passes
        if self.proposer is None:
            return said
        prediction = self.proposer(state.x, clock, **self.wide.condition)
        info.calls, info.rows = info.calls + self.proposer.passes, info.rows + rows * self.proposer.passes
        return Said(said.parts, prediction, said.log_twist, said.own)

    def _twisted(self, state: Particle, log_twist: Tensor | None) -> Particle:
        """The factor at these states in the place of that at the last ones."""
        new = torch.zeros_like(state.log_twist) if log_twist is None else log_twist.double()
        bad = new.isnan() | (new == torch.inf)
        if bool(bad.any()):
            i = int(bad.nonzero()[0, 0])
            raise ValueError(
                f"the logarithm of the target's factor is {new[i].item():g} (sample {i % self.n}, particle {i // self.n}): "
                f"it must be a number below infinity, and -inf where a state is impossible"
            )
        gain = torch.where(state.log_twist == -torch.inf, -torch.inf, new - state.log_twist.clamp_min(-1e300))
        return Particle(state.x, state.memory, state.log_weight + gain, new)

    def _by_group(self, values: Tensor) -> Float[Tensor, "groups particles"]:
        return values.reshape(self.count, self.n).T

    def _refuse_dead(self, weights: Tensor, x: Tree) -> None:
        dead = (weights == -torch.inf).all(1)
        if self.method.strict and bool(dead.any()):
            raise NoSurvivors(
                f"all {self.count} particles of {int(dead.sum())} of {self.n} samples have weight 0: take more particles, "
                f"more steps, or a proposal that heeds what is asked for; if nothing helps, it may be impossible",
                x,
                self._record(weights, x),
            )

    def _record(self, weights: Tensor, x: Tree) -> ParticleRecord:
        worth = torch.stack([*self.worth, effective_number(weights)], 1)
        return ParticleRecord(weights, self.log_z + log_mean(weights), worth, self.ancestors, x)

    def _resampled(self, state: Particle, k: int) -> Particle:
        """Groups whose weights are worth too little are drawn anew."""
        weights = self._by_group(state.log_weight)
        self._refuse_dead(weights, state.x)
        effective = effective_number(weights)
        due = (effective < self.method.share * self.count - 1e-9) & (effective > 0)
        index = torch.arange(self.count, device=weights.device).expand(self.n, -1)
        if bool(due.any()):
            u = self.problem.noise.at("resample", k).uniform()
            index = torch.where(due.unsqueeze(1), systematic(weights, u), index)
            rows = (index * self.n + torch.arange(self.n, device=index.device).unsqueeze(1)).T.flatten()
            state = state.rows(rows)
            self.log_z = self.log_z + torch.where(due, log_mean(weights), 0.0)
            fresh = due.repeat(self.count)
            state = Particle(state.x, state.memory, torch.where(fresh, 0.0, state.log_weight), state.log_twist)
        self.worth.append(effective)
        self.ancestors.append(index)
        return state


def numbers(log_weight: Tensor) -> Tensor:
    """The weights of a step, if all are numbers."""
    if bool((log_weight.isnan() | (log_weight == torch.inf)).any()):
        raise ValueError(
            "a step has no weight: a model with a negative exponent gives the probability 0 to what another proposes; let "
            "the models agree on what is impossible"
        )
    return log_weight


def log_mean(weights: Float[Tensor, "groups particles"]) -> Float[Tensor, "groups"]:
    return weights.logsumexp(1) - log(weights.shape[1])


def effective_number(weights: Float[Tensor, "groups particles"]) -> Float[Tensor, "groups"]:
    """(sum w)^2 / sum w^2; 0 where all weights are."""
    return torch.nan_to_num((2 * weights.logsumexp(1) - (2 * weights).logsumexp(1)).exp())


def systematic(weights: Float[Tensor, "groups particles"], u: Float[Tensor, "groups"]) -> Int[Tensor, "groups particles"]:
    """Ancestors by even teeth of a comb that is shifted by one number u for each group."""
    count = weights.shape[1]
    share = weights.softmax(1)
    teeth = (torch.arange(count, device=weights.device) + u.unsqueeze(1)) / count
    found = torch.searchsorted(share.cumsum(1), teeth, right=True)
    last = count - 1 - (share > 0).flip(1).to(torch.uint8).argmax(1, keepdim=True)  # rounding must not reach a weight of 0
    return torch.minimum(found, last)
