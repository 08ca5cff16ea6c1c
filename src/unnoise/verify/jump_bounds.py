"""Bounds of wrong networks under jump-diffusion of one number: exp(-bound) is at most a density.

So its integral is at most 1.  Data, x_t, time and the destinations of throws are all by nodes: nothing is drawn.  The
data's nodes are equal steps, which are accurate beyond all digits for what the cut-off has smoothed, on an interval outside
of which next to nothing lies (and what it misses could only add).
"""

from collections.abc import Iterator

import torch

from unnoise.processes import JumpDiffusion
from unnoise.verify.heat_bounds import integrals
from unnoise.verify.rows import Place, Row
from unnoise.verify.subjects import Subject, kind_name

FURTHEST, STEP, TIMES = 9.0, 1.0, 12  # of the data's nodes; of time


def jump_inequalities(process: JumpDiffusion, subject: Subject, networks: int) -> Iterator[Row]:
    """Small errors on the first half of the networks, large ones on the rest."""
    data = torch.arange(-FURTHEST, FURTHEST + STEP, STEP, dtype=torch.float64).reshape(-1, *[1] * len(process.space.shape))
    for kind in subject.kinds:
        place = Place(subject.name, kind_name(kind), "bound, continuous time")
        yield from integrals(subject, place, kind, data, STEP, TIMES, networks)
