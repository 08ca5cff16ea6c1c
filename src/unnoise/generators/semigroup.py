"""exp(g R) v for a rate matrix R and any g >= 0, entry by entry non-negative and summing to what v sums to.

With L the largest exit rate, P = I + R/L is a stochastic matrix and

    exp(g R) = sum_n e^{-L g} (L g)^n/n! P^n                                                        (uniformization)

has no negative term: entries are accurate to their last digits however small they are, for reversible and other R alike
(eigenvectors of a pure-death process are not: their condition number grows like 2^K).  The sum is short when L g is; so

    PowerTable   writes g = n h + r with L h = 1/128, keeps exp(2^j h R) for every j (each the square of the one before,
                 columns summed to 1 again), and applies those of n's binary digits: O(K^2 log(L g)) per vector, for any
                 stiffness.  What the rest r reaches by 18 jumps or more is left out: below L g = 1/4 entries under 1e-50
                 may be too small
    Series       sums the terms themselves, for sparse R: O(entries x L g) per vector; left out is less than 1e-19 of the
                 mass
    Eigen        for reversible R only: two products with orthogonal matrices, about ten times faster; entries below 1e-15
                 are rounding noise (but not over a short step, L g < 1/2, which takes the series)

A clock beyond the table's reach is cut to it.
"""

from abc import abstractmethod

import torch
from torch import Tensor, nn

from unnoise.checks import may_read
from unnoise.shapes import Float

TERMS = 18  # of the short series: (1/2)^18/18! = 6e-22
STEP = 2.0**-7  # L h of a table: far below 1/2, so that a rest of 18 jumps is rare even among the rarest paths
LEVELS = 80  # squarings at most
MOST_POWERS = 512  # states of matrices whose first powers are kept: 38 MB
LONGEST = 20_000.0  # L g that a series agrees to sum


def checked_rates(rates: Tensor) -> Tensor:
    """The matrix in float64 with its diagonal set to minus the column sums; a wrong entry is named."""
    dense = (rates if rates.layout == torch.strided else rates.to_dense()).double()
    if dense.ndim != 2 or dense.shape[0] != dense.shape[1]:
        raise ValueError(f"a rate matrix of shape {tuple(dense.shape)}: pass a square one, entry [y, x] the rate x -> y")
    off = dense - torch.diag(dense.diagonal())
    bad = ~((off >= 0) & off.isfinite())
    if bool(bad.any()):
        y, x = bad.nonzero()[0].tolist()
        raise ValueError(
            f"the rate {x} -> {y}, entry [{y}, {x}], is {off[y, x].item():g}: rates are finite and not negative"
        )
    exits, diagonal = off.sum(0), dense.diagonal()
    digits = torch.finfo(rates.dtype).eps ** 0.5 if rates.dtype.is_floating_point else 1e-9  # a float32 diagonal has fewer
    wrong = (diagonal != 0) & ((diagonal + exits).abs() > digits * exits.clamp_min(1e-300))
    if bool(wrong.any()):
        x = int(wrong.nonzero()[0, 0])
        rows = bool(((diagonal + off.sum(1)).abs() <= digits * off.sum(1).clamp_min(1e-300)).all())
        raise ValueError(
            f"column {x} sums to {(diagonal[x] + exits[x]).item():g}, not 0: entry [{x}, {x}] must be minus the exit rate "
            f"{exits[x].item():g}"
            + ("; its rows do sum to 0, so transpose it (entry [y, x] is the rate x -> y)" if rows else "")
        )
    if not bool(exits.any()):
        raise ValueError("every rate is 0: nothing would be noised")
    return off - torch.diag(exits)


def checked_entries(rates: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(target, source, rate) of the entries off the diagonal of a sparse matrix, float64; a wrong one is named."""
    coo = (rates if rates.layout == torch.sparse_coo else rates.to_sparse_coo()).coalesce()
    if coo.ndim != 2 or coo.shape[0] != coo.shape[1]:
        raise ValueError(f"a rate matrix of shape {tuple(coo.shape)}: pass a square one, entry [y, x] the rate x -> y")
    (target, source), values = coo.indices(), coo.values().double()
    off = target != source
    bad = off & ~((values >= 0) & values.isfinite())
    if bool(bad.any()):
        i = int(bad.nonzero()[0, 0])
        y, x = int(target[i]), int(source[i])
        value = values[i].item()
        raise ValueError(f"the rate {x} -> {y}, entry [{y}, {x}], is {value:g}: rates are finite and not negative")
    zero = torch.zeros(len(coo), dtype=torch.float64)
    exits = zero.index_add(0, source[off], values[off])
    diagonal = zero.index_add(0, source[~off], values[~off])
    digits = torch.finfo(rates.dtype).eps ** 0.5 if rates.dtype.is_floating_point else 1e-9
    wrong = (diagonal != 0) & ((diagonal + exits).abs() > digits * exits.clamp_min(1e-300))
    if bool(wrong.any()):
        x = int(wrong.nonzero()[0, 0])
        raise ValueError(
            f"column {x} sums to {(diagonal[x] + exits[x]).item():g}, not 0: entry [{x}, {x}] must be minus the exit rate "
            f"{exits[x].item():g}"
        )
    if not bool(exits.any()):
        raise ValueError("every rate is 0: nothing would be noised")
    keep = off & (values > 0)
    return target[keep], source[keep], values[keep]


def stationary(rates: Float[Tensor, "size size"]) -> Float[Tensor, "size"]:
    """The stationary law of an irreducible rate matrix, by state reduction: no subtraction, every digit right."""
    a = rates.clone().T  # a[x, y] the rate x -> y
    size = len(a)
    for n in range(size - 1, 0, -1):
        out = a[n, :n].sum()
        if not bool(out > 0):
            raise ValueError(f"state {n} leads to no state before it: the rate matrix is not irreducible")
        a[:n, n] = a[:n, n] / out
        a[:n, :n] += torch.outer(a[:n, n], a[n, :n])
    law = torch.zeros(size, dtype=torch.float64)
    law[0] = 1
    for n in range(1, size):
        law[n] = law[:n] @ a[:n, n]
    return law / law.sum()


class Semigroup(nn.Module):
    """g -> exp(g R)."""

    @abstractmethod
    def apply_to(self, v: Float[Tensor, "*batch size"], g: Tensor, transposed: bool = False) -> Tensor:
        """exp(g R) v, or its transpose, for each vector; g broadcasts with the vectors' batch shape.  float64."""

    @abstractmethod
    def matrix(self, g: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch size size"]:
        """exp(g R) itself.  float64."""


def _applied_to_all(semigroup: Semigroup, size: int, g: Tensor) -> Tensor:
    """The matrix by its action on unit vectors."""
    eye = torch.eye(size, dtype=torch.float64, device=g.device)
    return semigroup.apply_to(eye.expand(*g.shape, -1, -1), g.unsqueeze(-1)).mT


def poisson(rate: Tensor, terms: int) -> Tensor:
    """Poisson weights 0 ... terms - 1 in the last axis, with their slope where the rate is 0."""
    n = torch.arange(terms, dtype=torch.float64, device=rate.device)
    rate, log_factorial = rate.unsqueeze(-1), torch.lgamma(n + 1)
    low, high = rate.clamp_max(1), rate.clamp_min(1)
    return torch.where(
        rate < 1, (-low).exp() * low**n * (-log_factorial).exp(), (n * high.log() - high - log_factorial).exp()
    )


def series(product, v: Tensor, weights: Tensor) -> Tensor:
    """sum_n weights_n P^n v."""
    total = weights[..., :1] * v
    for n in range(1, weights.shape[-1]):
        v = product(v)
        total = total + weights[..., n : n + 1] * v
    return total


class Short(Semigroup):
    """The series for L g <= 1/2, or less."""

    jump: Tensor
    jumps: Tensor | None  # its powers, where they are not too large

    def __init__(self, rates: Float[Tensor, "size size"], mean: float = 0.5):
        super().__init__()
        self.fastest = float(-rates.diagonal().min())
        self.reach = mean / self.fastest
        eye = torch.eye(len(rates), dtype=torch.float64)
        self.register_buffer("jump", eye + rates / self.fastest, persistent=False)
        self.register_buffer("jumps", None, persistent=False)
        if len(rates) <= MOST_POWERS:
            powers = [eye]
            for _ in range(TERMS - 1):
                powers.append(powers[-1] @ self.jump)
            self.jumps = torch.stack(powers)

    def apply_to(self, v, g, transposed=False):
        jump = self.jump if transposed else self.jump.T  # vectors are rows here
        return series(lambda u: u @ jump, v, poisson(self.fastest * g, TERMS))

    def matrix(self, g):
        if self.jumps is None:
            return _applied_to_all(self, len(self.jump), g)
        return (poisson(self.fastest * g, TERMS) @ self.jumps.flatten(1)).unflatten(-1, self.jump.shape)


class PowerTable(Semigroup):
    """Powers of a short step, applied by the binary digits of g."""

    powers: Tensor

    def __init__(self, rates: Float[Tensor, "size size"], longest: float):
        super().__init__()
        self.short = Short(rates, STEP)
        self.step = reach = self.short.reach
        eye = torch.eye(len(rates), dtype=torch.float64)
        power = self._columns(self.short.apply_to(eye, torch.tensor(reach, dtype=torch.float64)).T)
        powers = [power]
        while reach < longest and len(powers) < LEVELS:
            power = self._columns(power @ power)
            powers.append(power)
            reach *= 2
        self.register_buffer("powers", torch.stack(powers), persistent=False)

    @staticmethod
    def _columns(kernel: Tensor) -> Tensor:
        return kernel / kernel.sum(0)

    def _split(self, g: Tensor) -> tuple[Tensor, Tensor]:
        """Whole steps, and the rest."""
        steps = (g / self.step).floor().clamp_max(2.0 ** min(len(self.powers), 62) - 1)
        return steps.long(), (g - steps * self.step).clamp(0, self.step)

    def apply_to(self, v, g, transposed=False):
        steps, rest = self._split(g)
        return self._stepped(self.short.apply_to(v, rest, transposed), steps, transposed)

    def matrix(self, g):
        steps, rest = self._split(g)
        return self._stepped(self.short.matrix(rest).mT, steps.unsqueeze(-1), False).mT

    def _stepped(self, v: Tensor, digits: Tensor, transposed: bool) -> Tensor:
        for j, power in enumerate(self.powers):
            on = ((digits >> j) & 1).bool().unsqueeze(-1)
            if not may_read(on) or bool(on.any()):
                v = torch.where(on, v @ (power if transposed else power.T), v)
        return v


class Series(Semigroup):
    """The sum itself, for sparse rates."""

    jump: Tensor

    def __init__(self, rates: Tensor, longest: float):
        super().__init__()
        (target, source, values), size = checked_entries(rates), len(rates)
        exits = torch.zeros(size, dtype=torch.float64).index_add(0, source, values)
        self.fastest = float(exits.max())
        if not self.fastest * longest <= LONGEST:
            raise ValueError(
                f"sparse rates up to {self.fastest:g} over a clock of {longest:g} take a series of "
                f"{self.fastest * longest:.3g} terms, more than {LONGEST:g}: use a schedule with a larger alpha_1, "
                f"smaller rates, or a dense matrix"
            )
        index = torch.stack([torch.cat([target, torch.arange(size)]), torch.cat([source, torch.arange(size)])])
        weight = torch.cat([values, self.fastest - exits]) / self.fastest
        jump = torch.sparse_coo_tensor(index, weight, (size, size), check_invariants=True).coalesce()
        self.register_buffer("jump", jump, persistent=False)
        self.register_buffer("jump_t", jump.t().coalesce(), persistent=False)

    def apply_to(self, v, g, transposed=False):
        mean = self.fastest * g
        longest = float(mean.detach().max())
        terms = int(longest + 9 * longest**0.5 + 30)
        matrix = self.jump_t if transposed else self.jump
        weights = poisson(mean, terms)
        weights = weights / weights.sum(-1, keepdim=True)  # n log(L g) of a long clock has fewer digits to give

        def product(u: Tensor) -> Tensor:
            return torch.sparse.mm(matrix, u.reshape(-1, u.shape[-1]).T).T.reshape(u.shape)  # type: ignore[arg-type]

        return series(product, v, weights)

    def matrix(self, g):
        return _applied_to_all(self, len(self.jump), g)


class Eigen(Semigroup):
    """Reversible rates: exp(g R) = D^{1/2} U e^{g l} U^T D^{-1/2} with D the stationary law."""

    values: Tensor
    left: Tensor
    right: Tensor

    def __init__(self, rates: Float[Tensor, "size size"]):
        super().__init__()
        law = stationary(rates)
        flow = rates * law  # [y, x]: the flow x -> y
        gap = (flow - flow.T).abs()
        if bool((gap > 1e-9 * flow.abs().max()).any()):
            y, x = divmod(int(gap.argmax()), len(law))
            raise ValueError(
                f"not reversible: the flow {x} -> {y} is {flow[y, x].item():g} and back {flow[x, y].item():g}; eigenvectors "
                f"would be ill-conditioned: use method='uniformization'"
            )
        root = law.sqrt()
        values, vectors = torch.linalg.eigh(0.5 * (rates * root / root[:, None] + (rates * root / root[:, None]).T))
        values[-1], vectors[:, -1] = 0.0, root  # known, so that a long clock loses no mass
        self.short = Short(rates)
        self.register_buffer("values", values.clamp_max(0), persistent=False)
        self.register_buffer("right", vectors / root[:, None], persistent=False)
        self.register_buffer("left", vectors * root[:, None], persistent=False)

    def apply_to(self, v, g, transposed=False):
        first, second = (self.left, self.right) if transposed else (self.right, self.left)
        far = (((v @ first) * self._decay(g)) @ second.T).clamp_min(0)
        near = (g < self.short.reach).unsqueeze(-1)
        if may_read(near) and not bool(near.any()):
            return far
        return torch.where(near, self.short.apply_to(v, g.clamp_max(self.short.reach), transposed), far)

    def matrix(self, g):
        far = ((self.left * self._decay(g).unsqueeze(-2)) @ self.right.T).clamp_min(0)
        near = (g < self.short.reach)[..., None, None]
        if may_read(near) and not bool(near.any()):
            return far
        return torch.where(near, self.short.matrix(g.clamp_max(self.short.reach)), far)

    def _decay(self, g: Tensor) -> Tensor:
        return torch.exp(g.unsqueeze(-1) * self.values)
