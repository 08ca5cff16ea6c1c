"""Angles drawn by inverting their distribution functions, to rounding.

A distribution function F(w) of the angle and its slope are sums of waves, of which those with l^2 v < 74 are all but e^-37.
The angle with F(w) = u is found by Newton's steps in a bracket; each row rests where it has arrived, so that it is what it
would be in any other batch.  Rotations have theirs in `rotation_laws`; on the globe, as int_c^1 P_l = (P_{l-1} -
P_{l+1})(c)/(2 l + 1) at c = cos w,

    F(w) = 1/2 [1 - c + sum_{l >= 1} e^{-l (l + 1) v/2} (P_{l-1} - P_{l+1})(c)],

and below v = 0.005, with s = w^2/2v,

    F(w) = 1 - e^{-s} [1 - v s/6 - v^2 (s/60 - s^2/360)]

up to 0.01 v^3: the law of a plane, corrected so that the mean waves are E P_l = e^{-l (l + 1) v/2} order by order.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from unnoise.checks import may_read

NARROW = 0.005  # the variance below which the law on the globe is that of a plane, corrected
FADED = 74.0  # waves count as far as l^2 v goes
STEPS, ROUNDING = 60, 3e-14  # of an inversion, at most, and where it ends
HELD = 2**13  # angles that are worked out at once: what they need stays in the cache

Share = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # of (w, v): a distribution function and its slope


def inverted(u: Tensor, v: Tensor, start: Tensor, high: Tensor, share: Share) -> Tensor:
    """The w in [0, high] at which the share is u, by Newton's steps in a bracket: for a row the same in any batch."""
    parts = (part.split(HELD) for part in torch.broadcast_tensors(u, v, start, high))
    return torch.cat([_inverted(a, b, c, d, share) for a, b, c, d in zip(*parts, strict=True)])


def _inverted(u: Tensor, v: Tensor, w: Tensor, high: Tensor, share: Share) -> Tensor:
    found, rows, low = torch.empty_like(w), torch.arange(len(w), device=w.device), torch.zeros_like(w)
    left = torch.ones_like(w, dtype=torch.bool)
    for _ in range(STEPS):
        reached, slope = share(w, v)
        gap = reached - u
        low, high = torch.where(gap < 0, w, low), torch.where(gap < 0, high, w)
        step = w - gap / slope.clamp_min(1e-300)
        left = left & (gap.abs() > ROUNDING)
        w = torch.where(left, torch.where((step >= low) & (step <= high), step, 0.5 * (low + high)), w)
        if may_read(u):
            if not bool(left.any()):
                break
            if 2 * int(left.sum()) < len(w):
                found[rows] = w
                rows, u, v, w, low, high = (part[left] for part in (rows, u, v, w, low, high))
                left = torch.ones_like(w, dtype=torch.bool)
    found[rows] = w
    return found


def waves_needed(v: Tensor, least: float) -> int:
    """How many waves of variances from `least` on are more than rounding."""
    return int((FADED / (max(least, float(v.min())) if may_read(v) and len(v) else least)) ** 0.5) + 2


def share_on_globe(w: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """F(w), the probability of a smaller angle, and its slope, for d = 2."""
    s, few = w.square() / (2 * variance), variance.clamp_max(NARROW)
    fall = torch.exp(-s)
    near = -torch.expm1(-s) + fall * few * s * (1 / 6 + few * (1 / 60 - s / 360))
    rise = fall * w / variance * (1 + few * (1 - s) / 6 + few.square() * (1 / 60 - s / 45 + s.square() / 360))
    if may_read(variance) and bool((variance < NARROW).all()):
        return near, rise
    v = variance.clamp_min(NARROW)
    c, fade = torch.cos(w), torch.exp(-v)
    before, now, weight, power = torch.ones_like(c), c, torch.ones_like(v), torch.ones_like(v)
    share, slope = 1 - c, torch.ones_like(c)
    for n in range(1, waves_needed(v, NARROW)):
        power = power * fade  # e^{-n v}, of which the weights e^{-n (n + 1) v/2} are products
        weight = torch.where(n * n * v < FADED, weight * power, 0.0)
        after = ((2 * n + 1) / (n + 1)) * (c * now) - (n / (n + 1)) * before
        share, slope = share + weight * (before - after), slope + (2 * n + 1) * (weight * now)
        before, now = now, after
    narrow = variance < NARROW
    return torch.where(narrow, near, 0.5 * share), torch.where(narrow, rise, 0.5 * torch.sin(w) * slope)
