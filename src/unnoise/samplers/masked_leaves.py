"""The masked leaves of a product: when their coordinates are revealed, and by what."""

from dataclasses import dataclass

import torch
from torch import Tensor

from unnoise import tree
from unnoise.noise import NoiseSource
from unnoise.predictions import Prediction
from unnoise.processes import Masking, Process
from unnoise.samplers.finish import leaf_processes, part_of
from unnoise.samplers.problem import Problem, on_host
from unnoise.samplers.reveal import masking_of, reveal_logits
from unnoise.samplers.row_grids import NEVER
from unnoise.samplers.tokens import Tokens
from unnoise.shapes import AnyState, Bool, Float, Int

BELOW_ONE = 1 - 2**-53  # a level rounded to 1 would never be reached


@dataclass(frozen=True)
class MaskedLeaf:
    """One of them: where it is, its first coordinate among those of all, and alpha at the common times."""

    path: tree.Path
    process: Masking
    first: int
    alpha: Float[Tensor, "times *shape"]

    @property
    def width(self) -> int:
        return self.process.space.dimension

    def of(self, x: AnyState) -> Tensor:
        return tree.pick(x, self.path)

    def masked(self, x: AnyState) -> Bool[Tensor, "rows coordinates"]:
        return (self.of(x) == self.process.mask).reshape(tree.batch_size(x), -1)

    def uniform(self, problem: Problem, purpose: str) -> Float[Tensor, "rows coordinates"]:
        numbers = problem.noise.at(*self.path, purpose).uniform(self.process.space.shape)
        return numbers.reshape(len(numbers), -1)

    def times(self, problem: Problem, x: AnyState) -> Float[Tensor, "rows coordinates"]:
        """When each coordinate is revealed: alpha there is uniform above that of the first time; `NEVER` where it is not.

        Coordinates with schedules of their own have no common inverse: between the common times a line stands for it.
        """
        schedule, times = self.process.schedule, problem.clock
        start, *_, end = self.alpha.reshape(len(times), -1)
        level = (start + (1 - start) * self.uniform(problem, "reveal")).clamp_max(BELOW_ONE)
        if schedule.shape:
            alpha = self.alpha.flatten(1)
            here = (level >= alpha[1:].unsqueeze(1)).sum(0).clamp_max(len(times) - 2)
            low, high = alpha.gather(0, here), alpha.gather(0, here + 1)
            tau = torch.lerp(times[here], times[here + 1], (level - low) / (high - low))
        else:
            tau = schedule.time_of_alpha(level).detach()
        return torch.where(self.masked(x) & (level < end), tau.clamp(times[-1], times[0]), NEVER)

    def revealed(
        self, x: AnyState, prediction: Prediction, shown: Int[Tensor, "rows some"], u: Tensor, tokens: Tokens
    ) -> Tensor:
        """The leaf with values at some coordinates of each row (numbered among those of all leaves), where it is masked."""
        leaf, width, place = self.of(x), self.width, shown - self.first
        here, place = (place >= 0) & (place < width), place.clamp(0, width - 1)
        index = torch.arange(len(leaf), device=leaf.device).unsqueeze(1) * width + place
        logits = reveal_logits(part_of(prediction, self.path), index.flatten())
        drawn = tokens.draw(logits, u.gather(1, self.first + place).flatten()).reshape(place.shape)
        flat = leaf.reshape(len(leaf), width)
        now = flat.gather(1, place)
        value = torch.where(now == self.process.mask, drawn, now)
        wide = torch.cat([flat, flat[:, :1]], 1)  # what belongs to another leaf is written beside
        return wide.scatter(1, torch.where(here, place, width), value)[:, :width].reshape(leaf.shape)

    def drawn_at(
        self,
        leaf: Tensor,
        prediction: Prediction,
        where: Bool[Tensor, "rows coordinates"],
        noise: NoiseSource,
        tokens: Tokens,
    ) -> Tensor:
        """The leaf with values at all of these coordinates, as if they were independent; the device is asked which."""
        index = where.flatten().nonzero().squeeze(1)
        u = noise.at(*self.path).uniform(self.process.space.shape).flatten()[index]
        drawn = tokens.draw(reveal_logits(part_of(prediction, self.path), index), u)
        return leaf.flatten().scatter(0, index, drawn).reshape(leaf.shape)


def masked_leaves(problem: Problem) -> list[MaskedLeaf]:
    """Those of a run, at any depth."""
    found: list[MaskedLeaf] = []
    for path, leaf in leaf_processes(problem.process):
        if leaf.absorbing:
            first, own = sum(other.width for other in found), masking_of(leaf)
            found.append(MaskedLeaf(path, own, first, _alpha(own, problem.times).to(problem.device)))
    return found


def _alpha(leaf: Masking, times: Float[Tensor, "times"]) -> Float[Tensor, "times *shape"]:
    return on_host(leaf.schedule).alpha(times).detach()


def masked_coordinates(process: Process) -> int:
    return sum(leaf.space.dimension for _, leaf in leaf_processes(process) if leaf.absorbing)


def other_leaves(process: Process) -> dict[str, Process]:
    """The leaves of a product that are not masked, at least not in all their parts."""
    return {name: leaf for name, leaf in process.leaves.items() if masked_coordinates(leaf) < leaf.space.dimension}


def expected_share(leaves: list[MaskedLeaf], times: Float[Tensor, "times"]) -> list[float]:
    """How many of the coordinates that are masked at the first time are revealed at each later one, on average."""
    alphas = [_alpha(leaf.process, times).reshape(len(times), -1).expand(-1, leaf.width) for leaf in leaves]
    alpha = torch.cat(alphas, 1)
    share = (alpha[1:] - alpha[0]) / (1 - alpha[0]).clamp_min(1e-12)
    return share.mean(1).clamp(0, 1).tolist()
