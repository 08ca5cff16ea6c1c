"""A row of the verification table: a quantity, its exact value, ours, the error and the verdict."""

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor

NEAR_ONE = 0.999  # times beyond this are where a schedule is steepest
ROUNDINGS = 16  # a number is a few roundings of its times away from the truth: those of s, of t and of what is made of them


@dataclass(frozen=True)
class Row:
    """One check.  `exact` and `ours` are the entries that differ most; `error` is max(absolute, relative) as tolerated.

    `note` says what the numbers do not: why a check could not be made, or what its tolerance follows from.  A row that was
    not checked has no numbers, and an infinite tolerance.
    """

    process: str
    prediction: str
    objective: str
    quantity: str
    exact: float
    ours: float
    error: float
    tolerance: float
    note: str = ""

    @property
    def ok(self) -> bool:
        return self.error <= self.tolerance  # False for NaN

    @property
    def verdict(self) -> str:
        return "not checked" if self.tolerance == math.inf else "ok" if self.ok else "FAIL"

    def json(self) -> dict:
        row = {**asdict(self), "verdict": self.verdict}
        if not self.note:
            del row["note"]
        elif math.isnan(self.ours):  # no numbers at all
            row.update(exact=None, ours=None, error=None, tolerance=None)
        return row


@dataclass(frozen=True)
class Place:
    """Where a check is made: process, prediction, objective."""

    process: str
    prediction: str = "-"
    objective: str = "-"

    def equal(self, quantity: str, exact, ours, tolerance: float, largest: bool = False) -> Row:
        """`ours` equals `exact` within tolerance * max(1, |exact|), or within that share of the largest entry."""
        exact, ours = (torch.as_tensor(v, dtype=torch.float64).detach() for v in (exact, ours))
        exact, ours = torch.broadcast_tensors(exact, ours)
        exact, ours = exact.flatten(), ours.flatten()
        scale = exact.abs().max() if largest else exact.abs().clamp_min(1)
        gap = torch.where(exact == ours, 0.0, (ours - exact).abs() / scale).nan_to_num(nan=torch.inf)
        i = int(gap.argmax())
        return self.row(quantity, exact[i], ours[i], gap[i], tolerance)

    def at_most(self, quantity: str, limit, ours, tolerance: float = 0.0) -> Row:
        """`ours` does not exceed `limit` by more than the tolerance."""
        limit, ours = (torch.as_tensor(v, dtype=torch.float64).detach() for v in (limit, ours))
        limit, ours = (v.flatten() for v in torch.broadcast_tensors(limit, ours))
        excess = (ours - limit).nan_to_num(nan=torch.inf)
        i = int(excess.argmax())
        return self.row(quantity, limit[i], ours[i], excess[i].clamp_min(0), tolerance)

    def sensitive(
        self,
        quantity: str,
        compared: Callable[..., tuple[Tensor, Tensor]],
        times: tuple[float, ...],
        tolerance: float,
        largest: bool = False,
    ) -> Row:
        """`equal` for (exact, ours) = compared(*times), near t = 1 not more strictly than the times are known.

        A time is a rounded number.  Where the answer itself moves when its times are the next numbers below, no arithmetic
        can do better than a few times that; a steep schedule's does.  The row then says so.  The limit is asked for only by
        a row that is beyond the plain tolerance: what is within it needs no allowance.
        """
        exact, ours = compared(*times)
        row = self.equal(quantity, exact, ours, tolerance, largest)
        if row.ok or max(times) <= NEAR_ONE:
            return row
        below = compared(*(math.nextafter(t, 0.0) for t in times))[0]
        if below.shape != exact.shape:  # other states are possible there: nothing to compare with
            return row
        moved = self.equal(quantity, exact, below, tolerance, largest).error
        allowed = ROUNDINGS * moved
        if not tolerance < allowed < math.inf:
            return row
        return replace(row, tolerance=allowed, note=f"{ROUNDINGS} x {moved:.1e}, what the last digit of a time changes")

    def undone(self, quantity: str, exact, ours, tolerance: float, magnified: float) -> Row:
        """`equal` for what an inverse gives back: a rounding of what it is given comes back magnified so many times."""
        allowed = 1e-15 * magnified
        row = self.equal(quantity, exact, ours, max(tolerance, allowed))
        return row if allowed <= tolerance else replace(row, note=f"a rounding comes back magnified {magnified:.1e} times")

    def failed(self, quantity: str, error: Exception) -> Row:
        """A computation that stopped."""
        told = str(error).strip().splitlines()
        note = f"{type(error).__name__}: {told[0]}" if told else type(error).__name__
        return replace(self.row(quantity, math.nan, math.nan, math.inf, 0.0), note=note)

    def unchecked(self, quantity: str, why: str) -> Row:
        """What is left out, and why."""
        return replace(self.row(quantity, math.nan, math.nan, 0.0, math.inf), note=why)

    def row(self, quantity: str, exact, ours, error, tolerance: float) -> Row:
        return Row(
            self.process, self.prediction, self.objective, quantity, float(exact), float(ours), float(error), tolerance
        )


def _numbers(row: Row) -> tuple[str, ...]:
    return f"{row.exact:.8g}", f"{row.ours:.8g}", f"{row.error:.1e}", f"{row.tolerance:.1e}"


def render(rows: Iterable[Row]) -> str:
    """The table as text."""
    head = ("process", "prediction", "objective", "quantity", "exact", "ours", "error", "tolerance", "verdict")
    body = [
        (
            row.process,
            row.prediction,
            row.objective,
            row.quantity,
            *(("-",) * 4 if row.note and math.isnan(row.ours) else _numbers(row)),
            f"{row.verdict}  ({row.note})" if row.note else row.verdict,
        )
        for row in rows
    ]
    widths = [max(len(line[i]) for line in [head, *body]) for i in range(len(head) - 1)] + [len(head[-1])]

    def show(line: tuple[str, ...]) -> str:
        cells = [
            cell.rjust(width) if 4 <= i <= 7 else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        return "  ".join(cells).rstrip()

    return "\n".join([show(head), "  ".join("-" * width for width in widths), *map(show, body)])
