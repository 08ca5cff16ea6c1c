"""A row of the verification table: a quantity, its exact value, ours, the error and the verdict."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

import torch


@dataclass(frozen=True)
class Row:
    """One check.  `exact` and `ours` are the entries that differ most; `error` is max(absolute, relative) as tolerated."""

    process: str
    prediction: str
    objective: str
    quantity: str
    exact: float
    ours: float
    error: float
    tolerance: float

    @property
    def ok(self) -> bool:
        return self.error <= self.tolerance  # False for NaN

    def json(self) -> dict:
        return {**asdict(self), "verdict": "ok" if self.ok else "FAIL"}


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

    def row(self, quantity: str, exact, ours, error, tolerance: float) -> Row:
        return Row(
            self.process, self.prediction, self.objective, quantity, float(exact), float(ours), float(error), tolerance
        )


def render(rows: Iterable[Row]) -> str:
    """The table as text."""
    head = ("process", "prediction", "objective", "quantity", "exact", "ours", "error", "tolerance", "verdict")
    body = [
        (
            row.process,
            row.prediction,
            row.objective,
            row.quantity,
            f"{row.exact:.8g}",
            f"{row.ours:.8g}",
            f"{row.error:.1e}",
            f"{row.tolerance:.1e}",
            "ok" if row.ok else "FAIL",
        )
        for row in rows
    ]
    widths = [max(len(line[i]) for line in [head, *body]) for i in range(len(head))]

    def show(line: tuple[str, ...]) -> str:
        cells = [
            cell.rjust(width) if 4 <= i <= 7 else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        return "  ".join(cells).rstrip()

    return "\n".join([show(head), "  ".join("-" * width for width in widths), *map(show, body)])
