"""Noise laws p on the states of one coordinate: what a value is replaced by.

    mask(size)                 all mass on MASK, the state with index `size`
    uniform(size)              1/K on the data's categories
    uniform_with_mask(size)    1/(K + 1) on the categories and MASK alike
    given(probs)               any law; probs is [states], or [*shape, states] for a law per coordinate
    frequencies(x0, size)      how often each category occurs in data (per coordinate if asked): the noise then starts from
                               the data's own marginals

A law evaluates one state in O(1), all of them in O(K), and draws without forming anything per row.
"""

from abc import abstractmethod
from collections.abc import Sequence
from math import log

import torch
from torch import Tensor, nn

from unnoise.laws import LOG_ZERO, log_of
from unnoise.noise import NoiseSource
from unnoise.spaces import Finite


class NoiseLaw(nn.Module):
    """A law on the `states` of a coordinate, or one law for each of them."""

    states: int
    shape: tuple[int, ...] = ()  # the coordinates' shape, where each has a law of its own

    @abstractmethod
    def log_probs(self, dtype: torch.dtype, device: torch.device) -> Tensor:
        """log p: [states] or [*shape, states]."""

    @abstractmethod
    def log_prob(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """log p(x), shaped like x."""

    @abstractmethod
    def draw(self, like: Tensor, noise: NoiseSource) -> Tensor: ...

    def fitted(self, space: Finite) -> "NoiseLaw":
        """The law for this space; refuses one that does not fit."""
        if self.states < space.size:
            raise ValueError(f"the noise law has {self.states} states for {space.size} categories: give each category one")
        if self.shape not in ((), space.shape):
            raise ValueError(f"noise laws of shape {self.shape} do not fit coordinates {space.shape}: pass one, or one each")
        return self


class _Mask(NoiseLaw):
    def __init__(self, size: int):
        super().__init__()
        self.mask, self.states = size, size + 1

    def log_probs(self, dtype, device):
        states = torch.arange(self.states, device=device)  # no number is sent to the device
        return torch.where(states == self.mask, 0.0, LOG_ZERO).to(dtype)

    def log_prob(self, x, dtype):
        return torch.where(x == self.mask, 0.0, LOG_ZERO).to(dtype)

    def draw(self, like, noise):
        return torch.full_like(like, self.mask)

    def extra_repr(self) -> str:
        return f"mask, states={self.states}"


class _Uniform(NoiseLaw):
    """Uniform over all states; on a space whose coordinates differ in size, over each one's own categories."""

    counts: Tensor | None

    def __init__(self, size: int, states: int, counts: Tensor | None = None):
        super().__init__()
        self.size, self.states = size, states
        self.shape = () if counts is None else tuple(counts.shape)
        self.register_buffer("counts", counts, persistent=False)

    def fitted(self, space):
        super().fitted(space)
        if space.sizes is None:
            return self
        if self.states > self.size:
            raise ValueError("uniform noise with MASK takes one number of categories for all coordinates")
        return _Uniform(space.size, space.size, space.sizes)

    def log_probs(self, dtype, device):
        if self.counts is None:
            return torch.full((self.states,), -log(self.states), dtype=dtype, device=device)
        counts = self.counts.to(device).unsqueeze(-1)
        return torch.where(torch.arange(self.states, device=device) < counts, -counts.to(dtype).log(), LOG_ZERO)

    def log_prob(self, x, dtype):
        if self.counts is None:
            flat = torch.full(x.shape, -log(self.states), dtype=dtype, device=x.device)
            return flat.masked_fill(x >= self.states, LOG_ZERO)
        counts = self.counts.to(x.device)
        return torch.where(x < counts, -counts.to(dtype).log(), LOG_ZERO)

    def draw(self, like, noise):
        u = noise.uniform(tuple(like.shape[1:]))
        if self.counts is None:
            return (u * self.states).long().clamp_max(self.states - 1)
        counts = self.counts.to(like.device)
        return (u * counts).long().clamp_max(counts - 1)

    def extra_repr(self) -> str:
        return f"uniform, states={self.states}"


class _Given(NoiseLaw):
    table: Tensor
    cumulative: Tensor

    def __init__(self, probs: Tensor):
        super().__init__()
        probs = torch.as_tensor(probs).double()
        if probs.ndim < 1:
            raise ValueError("a noise law is a vector of probabilities, one per state")
        bad = ~((probs >= 0) & probs.isfinite())
        if bool(bad.any()):
            i = bad.nonzero()[0].tolist()
            raise ValueError(f"the noise law has p{i} = {probs[tuple(i)].item():g}: probabilities are not negative")
        totals = probs.sum(-1)
        if float((totals - 1).abs().max()) > 1e-6:
            worst = totals.flatten()[int((totals - 1).abs().argmax())].item()
            raise ValueError(f"the noise law sums to {worst:g}, not 1: divide it by its sum")
        probs = probs / totals.unsqueeze(-1)
        self.states, self.shape = probs.shape[-1], tuple(probs.shape[:-1])
        self.register_buffer("table", log_of(probs), persistent=False)
        self.register_buffer("cumulative", probs.cumsum(-1), persistent=False)

    def fitted(self, space):
        super().fitted(space)
        valid = space.valid()
        if valid is not None:
            extra = self.states - space.size
            outside = (self.table > LOG_ZERO / 2) & ~torch.nn.functional.pad(valid, (0, extra), value=True)
            if bool(outside.any()):
                i = outside.nonzero()[0].tolist()
                raise ValueError(
                    f"the noise law gives mass to category {i[-1]} of coordinate {i[:-1]}, which has "
                    f"{int(space.sizes[tuple(i[:-1])])}: pass a law per coordinate with zeros there"
                )
        return self

    def log_probs(self, dtype, device):
        return self.table.to(device=device, dtype=dtype)

    def log_prob(self, x, dtype):
        table = self.table.to(x.device)
        picked = table.expand(len(x), *table.shape).gather(-1, x.unsqueeze(-1)).squeeze(-1) if self.shape else table[x]
        return picked.to(dtype)

    def draw(self, like, noise):
        u = noise.uniform(tuple(like.shape[1:]))
        cumulative = self.cumulative.to(like.device)
        if not self.shape:
            x = torch.searchsorted(cumulative, u * cumulative[-1], right=True)
        else:  # searchsorted wants the rows last
            scaled = (u * cumulative[..., -1]).movedim(0, -1).contiguous()
            x = torch.searchsorted(cumulative, scaled, right=True).movedim(-1, 0)
        return x.clamp_max(self.states - 1)

    def extra_repr(self) -> str:
        return f"given, states={self.states}"


def mask(size: int) -> NoiseLaw:
    """All mass on MASK."""
    return _Mask(size)


def uniform(size: int) -> NoiseLaw:
    """Uniform over the data's categories."""
    return _Uniform(size, size)


def uniform_with_mask(size: int) -> NoiseLaw:
    """Uniform over the data's categories and MASK."""
    return _Uniform(size, size + 1)


def given(probs: Tensor) -> NoiseLaw:
    """Any law, for all coordinates or one each."""
    return _Given(probs)


def frequencies(x0: Tensor, size: int | Sequence[int], per_coordinate: bool = False, smoothing: float = 1.0) -> NoiseLaw:
    """The categories' frequencies in data, with `smoothing` added to every count so that none is impossible.

    Coordinates that differ in size have a law each.
    """
    space = Finite(size, tuple(x0.shape[1:]))
    x0, size, valid = space.check(x0, "x0"), space.size, space.valid()
    per_coordinate = per_coordinate or valid is not None
    if not smoothing >= 0:
        raise ValueError(f"smoothing = {smoothing:g} must not be negative")
    flat = x0.reshape(len(x0), -1)
    counts = torch.zeros(flat.shape[1], size, dtype=torch.float64, device=x0.device)
    ones = torch.ones(1, dtype=torch.float64, device=x0.device).expand(flat.T.shape)
    counts = counts.scatter_add(1, flat.T, ones).cpu()
    counts = (counts.reshape(*x0.shape[1:], size) if per_coordinate else counts.sum(0)) + smoothing
    counts = counts if valid is None else counts * valid
    return _Given(counts / counts.sum(-1, keepdim=True))
