"""Rate matrices for `RateMatrix`: entry [y, x] is the rate x -> y, columns sum to 0.

Each is scaled so that its slowest mode relaxes at rate 1 (`relaxed`): then that mode decays like the schedule's alpha, as
under uniform noise, and one schedule suits them all.

    nearest_neighbour      x -> x +- 1: ordered categories, small steps
    discretised_gaussian   x -> y with weight exp(-(y - x)^2/(2 width^2)): ordered categories, longer steps; with a
                           stationary law pi the rate is that weight times pi_y, which keeps it reversible
    banded                 x -> y equally for |y - x| <= width
    similarity             x -> its nearest neighbours in an embedding: tokens are replaced by similar ones first
    birth_death            x -> x + 1 at births[x], x -> x - 1 at deaths[x]
    with_mask              any of them with absorption: every category also goes to MASK
"""

import torch
from torch import Tensor

from unnoise.generators.semigroup import checked_rates
from unnoise.shapes import Float

Rates = Float[Tensor, "size size"]


def _closed(off: Tensor) -> Tensor:
    off = off.double().clone()
    off.fill_diagonal_(0.0)
    return off - torch.diag(off.sum(0))


def relaxed(rates: Tensor) -> Tensor:
    """The matrix divided by its spectral gap: the slowest mode that decays does so at rate 1."""
    rates = checked_rates(rates)
    decay = -torch.linalg.eigvals(rates).real
    alive = decay[decay > 1e-9 * decay.max()]
    return rates / alive.min()


def _at_least_two(size: int) -> None:
    if size < 2:
        raise ValueError(f"size = {size}: a rate matrix needs at least two states")


def nearest_neighbour(size: int, periodic: bool = False) -> Tensor:
    """Steps of one, up or down alike; `periodic` closes the ends to a ring."""
    _at_least_two(size)
    off = torch.diag(torch.ones(size - 1), 1) + torch.diag(torch.ones(size - 1), -1)
    if periodic and size > 2:
        off[0, -1] = off[-1, 0] = 1.0
    return relaxed(_closed(off))


def _distance(size: int) -> Tensor:
    x = torch.arange(size, dtype=torch.float64)
    return (x[:, None] - x[None, :]).abs()


def discretised_gaussian(size: int, width: float, stationary: Tensor | None = None) -> Tensor:
    """Steps with Gaussian weights; the stationary law is uniform unless one is given."""
    _at_least_two(size)
    if not width > 0:
        raise ValueError(f"width = {width:g} must be positive: it is the typical length of a step")
    weight = (-0.5 * (_distance(size) / width).square()).exp()
    if stationary is not None:
        law = torch.as_tensor(stationary).double()
        if tuple(law.shape) != (size,) or not bool((law > 0).all()):
            raise ValueError(f"the stationary law must have {size} positive probabilities")
        weight = weight * law[:, None] / law.sum()
    return relaxed(_closed(weight))


def banded(size: int, width: int) -> Tensor:
    """Equal rates to every state within `width` steps."""
    _at_least_two(size)
    if not width >= 1:
        raise ValueError(f"width = {width} must be at least 1")
    return relaxed(_closed((_distance(size) <= width).double()))


def similarity(embeddings: Tensor, neighbours: int = 8, temperature: float = 0.1, sparse: bool = False) -> Tensor:
    """Rates exp(cosine/temperature) between each state and its nearest neighbours, made symmetric; with `sparse`, a sparse
    matrix whose largest exit rate is 1 (its gap would take a dense one to find)."""
    e = torch.as_tensor(embeddings).double()
    if e.ndim != 2 or not bool(e.isfinite().all()):
        raise ValueError(f"embeddings of shape {tuple(e.shape)}: pass one finite vector per state, [size, features]")
    size = len(e)
    _at_least_two(size)
    if not 1 <= neighbours < size:
        raise ValueError(f"neighbours = {neighbours}: choose between 1 and {size - 1}")
    if not temperature > 0:
        raise ValueError(f"temperature = {temperature:g} must be positive")
    e = e / e.norm(dim=1, keepdim=True).clamp_min(1e-12)
    rows, columns, values = [], [], []
    for i in range(0, size, 1024):  # never the whole size x size similarity at once
        cosine = e[i : i + 1024] @ e.T
        here = torch.arange(i, i + len(cosine))
        cosine[torch.arange(len(here)), here] = -torch.inf
        best, which = cosine.topk(neighbours, dim=1)
        rows.append(which.flatten())
        columns.append(here.repeat_interleave(neighbours))
        values.append(((best - 1) / temperature).exp().flatten())
    index = torch.stack([torch.cat(rows), torch.cat(columns)])
    one_way = torch.sparse_coo_tensor(index, torch.cat(values), (size, size), check_invariants=True)
    both = (one_way + one_way.t()).coalesce()
    if not sparse:
        return relaxed(_closed(both.to_dense()))
    exits = torch.zeros(size, dtype=torch.float64).index_add(0, both.indices()[1], both.values())
    return both / exits.max()


def birth_death(births: Tensor, deaths: Tensor) -> Tensor:
    """x -> x + 1 at births[x] (the last entry is not read), x -> x - 1 at deaths[x] (nor the first)."""
    births, deaths = torch.as_tensor(births).double(), torch.as_tensor(deaths).double()
    if births.ndim != 1 or births.shape != deaths.shape:
        raise ValueError(f"births {tuple(births.shape)} and deaths {tuple(deaths.shape)} must be vectors of one length")
    _at_least_two(len(births))
    off = torch.diag(births[:-1], -1) + torch.diag(deaths[1:], 1)
    return relaxed(_closed(off))


def with_mask(rates: Tensor, absorption: float = 1.0) -> Tensor:
    """One more state, MASK, to which every other goes at rate `absorption`; pass `size=len(rates)` to `RateMatrix`."""
    if not absorption > 0:
        raise ValueError(f"absorption = {absorption:g} must be positive")
    base = checked_rates(rates)
    size = len(base)
    off = torch.zeros(size + 1, size + 1, dtype=torch.float64)
    off[:size, :size] = base
    off[size, :size] = absorption
    return relaxed(_closed(off))
