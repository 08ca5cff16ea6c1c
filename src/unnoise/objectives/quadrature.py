"""Nodes in time for exact values on small spaces: those of Gauss and Legendre, graded towards 0, where rates of continuous
data grow like 1/t, and towards 1 where alpha' is infinite."""

from math import log

import numpy as np
import torch
from torch import Tensor

from unnoise.checks import constant_in_graphs
from unnoise.objectives.leaves import leaves_of
from unnoise.objectives.times import Times, Visits, graded, graded_slope, rows_and_device
from unnoise.processes import Process
from unnoise.shapes import Float

ENDS = (1 - 2.0**-28, 1 - 2.0**-30, 1.0)  # times at which the slope of alpha tells how it ends


@constant_in_graphs  # numpy finds them, whom a graph cannot trace
def _legendre(nodes: int) -> tuple[list[float], list[float]]:
    """Nodes and weights of the rule of Gauss and Legendre on [0, 1]."""
    points, weights = np.polynomial.legendre.leggauss(nodes)
    return ((points + 1) / 2).tolist(), (weights / 2).tolist()


def late_grading(process: Process, device: torch.device) -> Float[Tensor, ""]:
    """The power that resolves the rates at t = 1: 1, unless some alpha' is infinite there.

    With alpha' ~ (1 - t)^(a - 1) and 1 - t = u^p the integrand alpha' dt/du ~ u^(pa - 1) is smooth for p = 1/a, and for
    p = 2/a, which leaves more of a weak singularity's later terms smooth; a is read off alpha' at two times near 1.
    """
    powers = [torch.ones((), dtype=torch.float64, device=device)]
    for _, leaf in leaves_of(process):
        schedule = getattr(leaf, "schedule", None)
        if schedule is None:
            continue
        near, nearer, end = (schedule.d_alpha(torch.tensor(t, dtype=torch.float64, device=device)).detach() for t in ENDS)
        a = 1 - (nearer / near).log() / log(4)
        power = torch.where(a > 0.501, 2 / a, 1 / a).nan_to_num(nan=2.0).clamp(1.0, 8.0)
        powers.append(torch.where(end.isfinite(), 1.0, power).max())
    return torch.stack(powers).max()


class Quadrature(Times):
    """`late` > 1 grades towards 1 as well, for rates that are unbounded there: 2 for (1 - t)^(-1/2).  None: as the schedules
    of the process ask for."""

    is_bound = True  # nothing is drawn: the weights are those of the rule

    def __init__(self, nodes: int = 64, power: float = 4.0, late: float | None = None):
        self.nodes, self.power, self.late = nodes, power, late

    def visit(self, process, x0, low, noise):
        rows, device = rows_and_device(x0)
        u, w = (torch.tensor(a, dtype=torch.float64, device=device) for a in _legendre(self.nodes))
        late = late_grading(process, device) if self.late is None else self.late
        rest = graded(1 - u, 0.0, late)
        bend, t = graded_slope(rest, 0.0, late), graded(1 - rest, low, self.power)
        weight = w * bend * graded_slope(t, low, self.power)
        return Visits(t.unsqueeze(1).expand(-1, rows), weight.unsqueeze(1).expand(-1, rows))

    def on_chain(self):
        raise ValueError("Quadrature() is for an integral over time; a chain's bound is a sum over its steps: use Grid()")
