"""What no process has: refused along simulated paths, with where and why.

    shape      data that is no `Local`, or has a part that belongs to other states
    numbers    a drift that is not finite, a diffusion below 0, rates that are negative (their logarithm is NaN) or infinite
    measure    jumps whose rate is not finite, or is not the total that they say they have
    explosion  states beyond all bounds

Numbers are read where that makes no host wait (`checks.may_read`).
"""

from typing import Any

import torch
from torch import Tensor

from unnoise.checks import may_read
from unnoise.covariance import Covariance
from unnoise.laws import Law
from unnoise.shapes import AnyState, Tree
from unnoise.spaces import Local, Space
from unnoise.spaces.local import JumpKernel
from unnoise.tree import leaves, pick

LIMIT = 1e12  # beyond which a path has exploded
ALIKE = 1e-3  # by which a total rate and the sum over its jumps may differ


def checked_data(space: Space, local: Any, x: AnyState, where: str = "local(x, t)") -> Tree[Local]:
    """The generator's data, if it is of the form that its space reads."""
    if space.leaves:
        if not isinstance(local, dict) or set(local) != set(space.leaves):
            what = f"the leaves {sorted(local)}" if isinstance(local, dict) else f"a {type(local).__name__}"
            raise TypeError(f"{where} returned {what}: return a dict of un.Local with the leaves {sorted(space.leaves)}")
        return {name: checked_data(leaf, local[name], x[name], f"{where}[{name!r}]") for name, leaf in space.leaves.items()}
    if not isinstance(local, Local):
        raise TypeError(f"{where} returned a {type(local).__name__}: return un.Local(drift=..., diffusion=...)")
    if local.covariance is not None and not isinstance(local.covariance, Covariance):
        kind = type(local.covariance).__name__
        raise TypeError(f"{where} has a {kind} for a covariance: pass un.Covariance(matrix), which refuses one not positive")
    if local.log_rates is not None:
        wanted = space.slope_shape(x)  # type: ignore[arg-type]  # a leaf's
        if tuple(local.log_rates.shape) != wanted:
            raise ValueError(
                f"{where} has log_rates of shape {tuple(local.log_rates.shape)}; on {space} they are {wanted}, an entry for "
                f"each destination of each coordinate"
            )
    return local


def refuse_data(space: Space, local: Tree[Local], x: AnyState, t: float) -> None:
    """Numbers that no process has."""
    if space.leaves:
        for name, leaf in space.leaves.items():
            refuse_data(leaf, pick(local, (name,)), x[name], t)
        return
    data: Local = local  # type: ignore[assignment]
    at = f"at t = {t:g} the generator"
    for name, part in (("drift", data.drift), ("diffusion", data.diffusion)):
        if part is not None and may_read(part) and not bool(part.isfinite().all()):
            raise ValueError(f"{at}'s {name} in row {_row(~part.isfinite())} is not finite: the process would stop there")
    if data.diffusion is not None and may_read(data.diffusion) and bool((data.diffusion < 0).any()):
        row = _row(data.diffusion < 0)
        raise ValueError(f"{at} has the diffusion {float(data.diffusion.min()):g} (row {row}): it is a variance, >= 0")
    if data.log_rates is not None and may_read(data.log_rates):
        if bool(data.log_rates.isnan().any()):
            row = _row(data.log_rates.isnan())
            raise ValueError(f"{at} has log_rates that are NaN (row {row}), as the logarithm of a negative rate is")
        if bool((data.log_rates == torch.inf).any()):
            raise ValueError(f"{at} has an infinite rate (row {_row(data.log_rates == torch.inf)}): rates are finite")
    if data.jumps is not None:
        _refuse_measure(data.jumps, x, at)  # type: ignore[arg-type]


def _refuse_measure(jumps: JumpKernel, x: Tensor, at: str) -> None:
    found = jumps.rates(x)[1].sum(1)
    if not may_read(found):
        return
    if not bool(found.isfinite().all()):
        raise ValueError(f"{at} has jumps from row {_row(~found.isfinite())} at a rate that is not finite: see its log_rate")
    told = jumps.total(x)
    off = ~((told - found).abs() <= ALIKE * found.abs())
    if bool(off.any()):
        row = _row(off)
        raise ValueError(
            f"{at} says that row {row} is left at the rate {float(told[row]):g}, and its jumps sum to {float(found[row]):g} "
            f"over their nodes: the density must sum to the total, over nodes that reach all that it does"
        )


def refuse_still(space: Space, local: Tree[Local], t: float) -> None:
    """Numbers that move without noise: a step has no density, and its reverse none either."""
    if space.leaves:
        for name, leaf in space.leaves.items():
            refuse_still(leaf, pick(local, (name,)), t)
        return
    data: Local = local  # type: ignore[assignment]
    if space.reference == "counting measure":
        return
    a = data.diffusion
    if a is None or (may_read(a) and bool((a == 0).any())):
        raise ValueError(
            f"at t = {t:g} the generator has no diffusion in {'any' if a is None else 'some'} coordinate of {space}: a step "
            f"without noise has no density, so the bound of a path is infinite; add a small diffusion"
        )


def refuse_explosion(x: Tree, t: float) -> None:
    for leaf in leaves(x):
        if leaf.dtype.is_floating_point and may_read(leaf) and not bool((leaf.abs() < LIMIT).all()):
            if bool(leaf.isnan().any()):
                raise ValueError(f"a path is NaN by t = {t:g} (row {_row(leaf.isnan())}): look at what local(x, t) returns")
            raise ValueError(
                f"a path has exploded by t = {t:g}: its numbers pass {LIMIT:g} (row {_row(~(leaf.abs() < LIMIT))}); make "
                f"the steps smaller, or the drift grow less than linearly"
            )


def checked_surprise(law: Law, x: Tree, rows: int) -> Tensor:
    """-log p(x), if the law says a number for each row."""
    value = law.log_prob(x)
    if tuple(value.shape) != (rows,):
        raise ValueError(
            f"the prior's log_prob has shape {tuple(value.shape)}: return one number for each row, ({rows},), the sum over "
            f"its coordinates"
        )
    return -value.double()


def _row(bad: Tensor) -> int:
    return int(bad.reshape(len(bad), -1).any(1).nonzero()[0])
