"""Bounds of wrong networks on the simplex and of positive numbers: exp(-bound) sums to at most 1 over the vertices, or
integrates to at most 1; of shares it is at most the law of the network's own reverse (`verify.own_laws`).

Inside the integral is one of Lebesgue's measure of the first share, by Gauss's nodes; those over x_t and time are sums over
nodes too, so that nothing is drawn.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unnoise.objectives import Quadrature, bound, default_decoder
from unnoise.processes import CoxIngersollRoss, WrightFisher
from unnoise.verify.guard import guarded
from unnoise.verify.own_laws import OwnLaw, above_own_law, exact_law
from unnoise.verify.rows import Place, Row
from unnoise.verify.subjects import Subject, kind_name
from unnoise.verify.wrong import Perturbed

NODES, TIMES = 20, 24  # of the data, and of time: the integrands are smooth in both
SMALL, LARGE = 0.1, 1.0
MOST = 4  # networks
WIDE, HIGHEST = 40, 40.0  # nodes of positive numbers, and the largest


def simplex_inequalities(process: WrightFisher, subject: Subject, networks: int) -> Iterator[Row]:
    """Small errors on the first half of the networks, large ones on the rest."""
    if process.vertices:
        data = torch.eye(process.space.size, dtype=torch.float64)
        weights = torch.ones(len(data), dtype=torch.float64)
    elif process.space.dimension == 1:
        data, weights = process.space.nodes(NODES)
    else:
        why = f"an integral over {process.space}, of integrals over it, takes too long here"
        yield Place(subject.name).unchecked("bounds of wrong networks", why)
        return
    own = OwnLaw(process) if process.space.dimension == 1 else None
    if own is not None:
        yield from exact_law(own, subject, Place(subject.name))
    for kind in subject.kinds:
        place = Place(subject.name, kind_name(kind), "bound, continuous time")
        yield from _inequalities(subject, place, kind, data, weights, networks, own)


def orthant_inequalities(process: CoxIngersollRoss, subject: Subject, networks: int) -> Iterator[Row]:
    """One positive number, by Gauss's nodes of its root."""
    if process.space.dimension > 1:
        why = f"an integral over {process.space}, of integrals over it, takes too long here"
        yield Place(subject.name).unchecked("bounds of wrong networks", why)
        return
    z, w = (torch.as_tensor(part) for part in np.polynomial.legendre.leggauss(WIDE))
    root = HIGHEST**0.5 / 2 * (z + 1)
    data, weights = root.square().reshape(-1, *process.space.shape), HIGHEST**0.5 / 2 * w * 2 * root
    for kind in subject.kinds:
        place = Place(subject.name, kind_name(kind), "bound, continuous time")
        yield from _inequalities(subject, place, kind, data, weights, networks)


@guarded("bounds of wrong networks")
def _inequalities(
    subject: Subject, place: Place, kind: Any, data: Tensor, weights: Tensor, networks: int, own: OwnLaw | None = None
) -> Iterator[Row]:
    eps, decoder = subject.cutoffs[-1], default_decoder(subject.process)
    for i in range(min(networks, MOST)):
        scale = SMALL if i < min(networks, MOST) / 2 else LARGE
        model = Perturbed(subject.oracle.predicting(kind), scale, 100 + i)
        ours = bound(model, data, exact=True, times=Quadrature(TIMES), cutoff=eps, decoder=decoder).total
        mass = (weights * (-ours).exp()).sum()
        which = f"noise {scale:g}, network {i}"
        yield place.at_most(f"integral of exp(-bound) <= 1, {which}", 1.0, mass, 1e-6)
        if scale < LARGE:
            yield place.at_most(f"integral of exp(-bound) > 0.1, {which}", mass, 0.1)
        if own is not None:
            yield above_own_law(own, model, place, which, data, eps, decoder, ours)
