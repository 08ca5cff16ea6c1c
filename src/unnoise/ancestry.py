"""How many ancestral lines are left after a time tau: the law of M behind the Wright-Fisher diffusion.

Backwards in time lines merge and mutate: M falls from infinity by one at the rates mu_j = j (j + theta - 1)/2.  A time tau
after the start there are M of them with the probability q_M(tau), and the diffusion is "Dirichlet with M pseudo-counts"
(`simplex_laws`).  The printed series of q_M alternates and loses all its digits below tau = 0.05.  Here it is an integral:
M lines are left at tau where the last of the falls to M came before, and none since,

    q_M(tau) = 1/(2 pi i) int e^{s tau} 1/(mu_M + s) prod_{j > M} mu_j/(mu_j + s) ds,
    prod_{j > M} = Gamma(M + 1 + c + d) Gamma(M + 1 + c - d)/(Gamma(M + 1) Gamma(M + theta)),    c = (theta - 1)/2,
    d^2 = c^2 - 2 s.

The poles lie left of -mu_M.  On the real line to the right of it the integrand, exp(f), has one minimum s_0, where

    f' = tau - 1/(mu_M + s) - sum_{j > M} 1/(mu_j + s) = 0,

and along the parabola s = s_0 + i a y - b y^2, a^2 = 1/f'', b = -f'''/(6 f''^2), of steepest descent it falls like
e^{-y^2/2} and does not change its sign, so that the trapezoidal rule has full *relative* precision at every M and tau.
Only a rough s_0 is needed: the sum over j > M is taken as an integral from M + 1/2 on.

**Many times.**  log q_M is smooth in log tau.  Where a batch has more than 48 different times they are interpolated, by
polynomials through 12 points of a grid of spacing 0.05 in log tau that is worked out once: within 1e-10.  Their derivative
in tau is that of the equation,

    d/dtau log q_M = mu_{M+1} q_{M+1}/q_M - mu_M.

**Draws.**  M falls from one time to another by exponential waiting times, exactly.  So M is drawn from the table of q at the
last of the times 1/3, 1/6, 1/9, ... before tau, by inverting its distribution function, and then falls for the rest of the
time, some six times.  Below tau = 1/384 M is normal with a correction for its skewness, of mean 2/tau - (theta - 1)/2 - 1/6
and variance 2/(3 tau): within 1e-4 of q in total variation there, and less below.
"""

from functools import lru_cache
from math import ceil, exp, log, pi, sqrt

import torch
from torch import Tensor

from unnoise.laws import LOG_ZERO
from unnoise.noise import NoiseSource
from unnoise.shapes import Float, Int

STEP, NODES = 0.27, 38  # of the trapezoidal rule along the parabola
SHIFT = 8  # by which arguments are raised before Stirling's series
STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)
REACH = 11.0  # standard deviations of M above its mean that count
HELD = 2**14  # numbers of lines worked out at once
SKEW = 0.2 * sqrt(3)  # the skewness of M over sqrt(tau/2), as tau tends to 0
MANY = 48  # different times, beyond which they are interpolated
SPACING, STENCIL, BLOCK = 0.05, 12, 16  # in log tau; points of a polynomial; points worked out together
EVERY, CELLS = 3.0, 128  # tables at tau = 1/(3 n), n = 1, ..., 128
LEAST = 1e-6  # times below are out of reach: M has millions of values


def log_gamma(z: Tensor) -> Tensor:
    """log Gamma of complex numbers with a real part above 0, up to a multiple of 2 pi i."""
    product = torch.ones_like(z)
    for i in range(SHIFT):
        product = product * ((z + i) / (SHIFT + i))
    scale = sum(log(SHIFT + i) for i in range(SHIFT))
    w = z + SHIFT
    inverse = 1 / w
    square, series = inverse * inverse, torch.zeros_like(w)
    for coefficient in reversed(STIRLING):
        series = series * square + coefficient
    return (w - 0.5) * w.log() - w + 0.5 * log(2 * pi) + series * inverse - product.log() - scale


def most_lines(tau: float, theta: float) -> int:
    """The largest M that counts, with room for factors that grow like M^theta."""
    return ceil(2 / tau + REACH * sqrt(2 / (3 * tau) + theta / (6 * tau)) + 24 + 2 * theta)


def log_lines(tau: Float[Tensor, "times"], theta: float) -> Float[Tensor, "times lines"]:
    """log q_M(tau) for M = 0, 1, ..., float64, LOG_ZERO beyond those that count; differentiable once in tau."""
    now = tau.detach().double()
    different, which = torch.unique(now, return_inverse=True)
    if len(different) > MANY:
        log_q = _interpolated(different.cpu(), theta).to(tau.device)[which]
    else:
        log_q = _known(tuple(different.tolist()), theta).to(tau.device)[which]
    return log_q + _slope(log_q, theta) * (tau.double() - now).unsqueeze(-1) if tau.requires_grad else log_q


def _slope(log_q: Tensor, theta: float) -> Tensor:
    m = torch.arange(log_q.shape[-1] + 1, dtype=torch.float64, device=log_q.device)
    rate = 0.5 * m * (m + theta - 1)
    gained = rate[1:] * torch.nn.functional.pad((log_q[:, 1:] - log_q[:, :-1]).clamp_max(50).exp(), (0, 1))
    return torch.where(log_q > LOG_ZERO / 2, gained - rate[:-1], 0.0)


def _interpolated(tau: Tensor, theta: float) -> Tensor:
    place = tau.log() / SPACING
    base = place.floor().long() - (STENCIL // 2 - 1)
    first, last = int(base.min()) // BLOCK, (int(base.max()) + STENCIL - 1) // BLOCK
    blocks = [_block(i, theta) for i in range(first, last + 1)]
    length = blocks[0].shape[-1]
    grid = torch.cat([torch.nn.functional.pad(part, (0, length - part.shape[-1]), value=LOG_ZERO) for part in blocks])
    nodes = torch.arange(STENCIL, dtype=torch.float64)
    apart = (nodes.unsqueeze(1) - nodes).fill_diagonal_(1)
    factors = ((place - base).unsqueeze(-1) - nodes).unsqueeze(1).expand(-1, STENCIL, -1) / apart
    own = factors.masked_fill(torch.eye(STENCIL, dtype=torch.bool), 1.0).prod(-1)
    weight = torch.zeros(len(tau), len(grid), dtype=torch.float64)
    weight.scatter_(1, (base - first * BLOCK).unsqueeze(1) + nodes.long(), own)
    most = torch.tensor([most_lines(time, theta) for time in tau.tolist()])
    counts = torch.arange(int(most.max()) + 1) <= most.unsqueeze(-1)
    return torch.where(counts, weight @ grid[:, : counts.shape[1]], LOG_ZERO)


@lru_cache(256)
def _block(i: int, theta: float) -> Tensor:
    """At BLOCK points of the grid, with as many lines as the times around them need."""
    times = tuple(((torch.arange(BLOCK, dtype=torch.float64) + BLOCK * i) * SPACING).exp().tolist())
    return _worked_out(times, theta, exp(-SPACING * STENCIL / 2))


@lru_cache(16)
def _known(times: tuple[float, ...], theta: float) -> Tensor:
    return _worked_out(times, theta)


def _worked_out(times: tuple[float, ...], theta: float, room: float = 1.0) -> Tensor:
    with torch.inference_mode(False), torch.no_grad():
        tau = torch.tensor(times, dtype=torch.float64)
        most = torch.tensor([most_lines(time * room, theta) for time in times])
        lines = torch.arange(int(most.max()) + 1, dtype=torch.float64)
        counts = lines <= most.unsqueeze(-1)
        table = torch.full(counts.shape, LOG_ZERO, dtype=torch.float64)
        pairs_tau, pairs = tau.unsqueeze(-1).expand_as(table)[counts], lines.expand_as(table)[counts]
        parts = zip(pairs_tau.split(HELD), pairs.split(HELD), strict=True)
        table[counts] = torch.cat([_integral(t, m, theta) for t, m in parts])
        return table


def _integral(tau: Tensor, lines: Tensor, theta: float) -> Tensor:
    """By the trapezoidal rule along the parabola; the half y < 0 has the conjugate values."""
    c, rate = (theta - 1) / 2, 0.5 * lines * (lines + theta - 1)
    w = _saddle(tau, lines + c)
    saddle = 0.5 * (c * c - w)
    second, third = _sums(lines + c, w)
    a, b = second.rsqrt().unsqueeze(-1), (third / (3 * second.square())).unsqueeze(-1)
    y = STEP * torch.arange(NODES, dtype=torch.float64, device=tau.device)
    s = torch.complex(saddle.unsqueeze(-1) - b * y.square(), a * y)
    slope = torch.complex(a.expand_as(s.real), 2 * b * y)  # ds/dy over i
    d, start = (c * c - 2 * s).sqrt(), (lines + 1 + c).unsqueeze(-1)
    known = torch.lgamma(lines + 1) + torch.lgamma(lines + theta)
    exponent = s * tau.unsqueeze(-1) + log_gamma(start + d) + log_gamma(start - d) - known.unsqueeze(-1)
    peak = exponent.real[:, :1]
    values = ((exponent - peak).exp() * slope / (s + rate.unsqueeze(-1))).real
    total = STEP / pi * (values.sum(-1) - 0.5 * values[:, 0])
    return total.clamp_min(1e-300).log() + peak[:, 0]


def _saddle(tau: Tensor, place: Tensor) -> Tensor:
    """d^2 at s_0, by bisection: the mean waiting time is tau there; place is M + c."""
    high = place.square()
    low = -(4 * pi / tau + 4 * place + 4).square()
    for _ in range(60):
        w = (low + high) / 2
        long = 2 / _gap(place, w) + _tail(place + 0.5, w) > tau
        low, high = torch.where(long, low, w), torch.where(long, w, high)
    return (low + high) / 2


def _gap(place: Tensor, w: Tensor) -> Tensor:
    """2 (mu_M + s) = (M + c)^2 - d^2."""
    return (place.square() - w).clamp_min(1e-300)


def _tail(after: Tensor, w: Tensor) -> Tensor:
    """T = int 2/(u^2 - w) du from `after` on: an arc tangent, or its hyperbolic kin."""
    root = w.abs().sqrt().clamp_min(1e-6)
    ratio = root / after
    return 2 / root * torch.where(w < 0, torch.atan(ratio), torch.atanh(ratio.clamp_max(1 - 1e-12)))


def _sums(place: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """sum 1/(mu + s)^2 and sum 1/(mu + s)^3 over j >= M: the first term, and 2 dT/dw and 2 d^2T/dw^2 for the rest."""
    first, after = 2 / _gap(place, w), place + 0.5
    gap = after.square() - w
    small = w.abs() < 0.05 * after.square()
    safe = torch.where(small, 1.0, w)
    once = torch.where(small, 2 / (3 * after**3), (2 * after / gap - _tail(after, w)) / (2 * safe))
    twice = torch.where(small, 0.8 / after**5, (2 * after / gap.square() - 3 * once) / (2 * safe))
    return first.square() + 2 * once.clamp_min(0), first**3 + 2 * twice.clamp_min(0)


# draws


@lru_cache(512)
def _table(cell: int, theta: float) -> Tensor:
    """The distribution function of M at tau = 1/(EVERY cell)."""
    with torch.inference_mode(False):
        tau = torch.tensor([1 / (EVERY * cell)], dtype=torch.float64)
        total = log_lines(tau, theta)[0].exp().cumsum(0)
        return total / total[-1]


def draw_lines(tau: Float[Tensor, "batch"], theta: float, noise: NoiseSource) -> Int[Tensor, "batch"]:
    """M after the time tau of each row."""
    tau = tau.detach().double()
    cell = (1 / (EVERY * tau.clamp_min(LEAST))).ceil().clamp_min(1)
    drawn = _normal_lines(tau.clamp_min(LEAST), theta, noise.at("normal").normal())
    tabled = (cell <= CELLS).nonzero()[:, 0]
    if len(tabled):
        drawn[tabled] = _tabled(tau[tabled], cell[tabled].long(), theta, noise.of(tabled))
    return drawn


def _tabled(tau: Tensor, cell: Tensor, theta: float, noise: NoiseSource) -> Tensor:
    u, lines = noise.at("lines").uniform(), torch.zeros_like(cell)
    for one in cell.unique().tolist():
        rows = cell == one
        lines[rows] = torch.searchsorted(_table(one, theta).to(u.device), u[rows], right=True)
    return _fallen(lines, tau - 1 / (EVERY * cell), theta, noise.at("falls"))


def _fallen(lines: Tensor, left: Tensor, theta: float, noise: NoiseSource) -> Tensor:
    """M after a while more: it waits for an exponential time of the rate mu_M, and falls by one."""
    lines, left, going, count = lines.clone(), left.clone(), torch.arange(len(lines), device=lines.device), 0
    while len(going):
        m = lines[going].double()
        rate = 0.5 * m * (m + theta - 1)
        left[going] += noise.of(going).at(count).uniform().log() / rate.clamp_min(1e-300)
        going, count = going[(left[going] > 0) & (rate > 0)], count + 1
        lines[going] -= 1
    return lines


def _normal_lines(tau: Tensor, theta: float, z: Tensor) -> Tensor:
    mean, std = 2 / tau - (theta - 1) / 2 - 1 / 6, (2 / (3 * tau)).sqrt()
    skewness = SKEW * (tau / 2).sqrt()
    return (mean + std * (z + skewness / 6 * (z.square() - 1))).round().clamp_min(0).long()
