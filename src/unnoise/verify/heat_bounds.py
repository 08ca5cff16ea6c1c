"""Closed spaces: geodesic random walks, and bounds of wrong networks.

A step of `FromGenerator` goes along a geodesic, stays on the space and has its order there (`verify.generator_moves`); it is
put to the forward generator tilted by a function, which has a drift besides.

For any network exp(-bound) is at most a density, so its integral is at most 1; and it is at most that of the law which the
network's own reverse process has (`verify.own_laws`).

The integral over the data is by the space's own nodes, that over x_t by the process's, and that over time by quadrature:
nothing is drawn, so the inequality is checked to rounding.
"""

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from unnoise.objectives import Quadrature, bound, default_decoder
from unnoise.processes import HeatProcess
from unnoise.verify.generator_moves import move_checks
from unnoise.verify.generators import wave
from unnoise.verify.generic_kernels import noised
from unnoise.verify.guard import guarded
from unnoise.verify.own_laws import OwnLaw, above_own_law, exact_law
from unnoise.verify.rows import Place, Row
from unnoise.verify.subjects import Subject, kind_name
from unnoise.verify.wrong import Perturbed

TILT = 0.3  # the size of log h
NODES, TIMES, CUTOFF = 24, 40, 0.1  # of the data, and of time: the integrands are smooth in both


def heat_inequalities(process: HeatProcess, subject: Subject, networks: int) -> Iterator[Row]:
    """Small errors on the first half of the networks, large ones on the rest; and before them the walks."""
    leaning = process.generator(0.5).tilted(wave(5, TILT))
    yield from move_checks(leaning, noised(process, subject.points, 0.5), Place(subject.name), [wave(k) for k in range(3)])
    if process.space.dimension > 1:
        why = f"an integral over {process.space}, of integrals over it, takes too long here"
        yield Place(subject.name).unchecked("bounds of wrong networks", why)
        return
    data, weights = process.space.nodes(NODES)
    own = OwnLaw(process)
    yield from exact_law(own, subject, Place(subject.name))
    for kind in subject.kinds:
        place = Place(subject.name, kind_name(kind), "bound, continuous time")
        yield from integrals(subject, place, kind, data, weights, TIMES, networks, own)


@guarded("bounds of wrong networks")
def integrals(
    subject: Subject,
    place: Place,
    kind: Any,
    data: Tensor,
    weights: Tensor | float,
    times: int,
    networks: int,
    own: OwnLaw | None = None,
) -> Iterator[Row]:
    """int exp(-bound) over the data's nodes for wrong networks."""
    decoder = default_decoder(subject.process)
    for i in range(networks):
        scale = 0.1 if i < networks / 2 else 1.5
        model = Perturbed(subject.oracle.predicting(kind), scale, 100 + i)
        ours = bound(model, data, exact=True, times=Quadrature(times), cutoff=CUTOFF, decoder=decoder).total
        mass = (weights * (-ours).exp()).sum()
        which = f"noise {scale:g}, network {i}"
        yield place.at_most(f"integral of exp(-bound) <= 1, {which}", 1.0, mass, 1e-6)
        if scale < 1:
            yield place.at_most(f"integral of exp(-bound) > 0.1, {which}", mass, 0.1)
        if own is not None:
            yield above_own_law(own, model, place, which, data, CUTOFF, decoder, ours)
