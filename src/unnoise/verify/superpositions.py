"""What a superposition of a diffusion and jumps is put to, on one number, where all of its integrals are sums.

path       dq_t/dt + L^* q_t = 0: the exact denoiser's reverse process, at any weight, undoes the path
jumps      the total rate in closed form is the sum over nodes
bound      at weight 1, with the exact denoiser and decoder, -log q(x_0); linear in the weight; at other weights its mean
           is above the entropy (the paths' own share, see `processes.superposition`)
wrong      the integral of exp(-bound) of wrong networks is at most 1, and more than a tenth
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from unnoise.laws import Normal
from unnoise.objectives import Quadrature, bound
from unnoise.oracles import Oracle
from unnoise.predictions import MixturePosterior
from unnoise.processes import Superposition
from unnoise.verify.guard import guarded
from unnoise.verify.rows import Place, Row
from unnoise.verify.subjects import Subject, kind_name
from unnoise.verify.wrong import Perturbed

LINE, REACH, DATA, WEIGHTS = 700, 5.0, 28, (0.0, 0.5, 1.0)


def superposition_checks(subject: Subject, networks: int) -> Iterator[Row]:
    place = Place(subject.name, kind_name(MixturePosterior))
    yield from _path(subject, place)
    yield from _jumps(subject, place)
    yield from _bounds(subject, place)
    yield from _wrong(subject, place, networks)


def at_weight(oracle: Oracle, weight: float) -> Oracle:
    """The oracle in another proportion; of one that remembers the answers, the one that gives them."""
    own: Oracle = getattr(oracle, "oracle", oracle)
    return own.predicting(process=own.process.mixed(weight))  # type: ignore[operator]


def line(count: int, reach: float) -> tuple[Tensor, float]:
    """Points [count, 1] of a rule for integrals over numbers, and their weight."""
    h = 2 * reach / count
    return (torch.arange(count, dtype=torch.float64) * h + h / 2 - reach).unsqueeze(1), h


def left_over(oracle: Oracle, x: Tensor, t: float) -> Tensor:
    """dq/dt + L^* q at some points of the line, q the exact marginal, L^ the reverse process of the oracle's predictions."""
    process: Superposition = oracle.process  # type: ignore[assignment]
    y, h = line(LINE, REACH + 9 * float(process.schedule.sigma(t)))

    def q(x: Tensor) -> Tensor:
        return oracle.log_marginal(x, t).exp()

    def flux(x: Tensor) -> Tensor:
        return -oracle(x, t).local().drift.squeeze(1) * q(x)  # type: ignore[union-attr,operator]

    with torch.enable_grad():
        time = torch.full((len(x),), t, dtype=torch.float64, requires_grad=True)
        total = torch.autograd.grad(oracle.log_marginal(x, time).exp().sum(), time)[0]
        at = x.clone().requires_grad_()
        total = total + torch.autograd.grad(flux(at).sum(), at)[0].squeeze(1)
        a = oracle(x[:1], t).local().diffusion  # type: ignore[union-attr]
        if a is not None:
            slope = torch.autograd.grad(q(at).sum(), at, create_graph=True)[0]
            total = total + 0.5 * a.squeeze() * torch.autograd.grad(slope.sum(), at)[0].squeeze(1)
    jumps = oracle(y, t).local().jumps  # type: ignore[union-attr]
    if jumps is not None:
        into = torch.stack([(jumps.log_rate(y, one.expand_as(y)).exp() * q(y)).sum() * h for one in x])
        own = oracle(x, t).local().jumps  # type: ignore[union-attr]
        total = total + into - own.total(x) * q(x)
    return total.detach()


@guarded("the path of the exact denoiser")
def _path(subject: Subject, place: Place) -> Iterator[Row]:
    for weight in WEIGHTS:
        oracle = at_weight(subject.oracle, weight)
        for t in (0.3, 0.7):
            gap = left_over(oracle, subject.points[:4], t)  # type: ignore[index]
            yield place.equal(f"dq/dt + reverse generator's adjoint on q, weight {weight:g}, t={t:g}", 0.0, gap, 1e-8)


@guarded("rates of jumps")
def _jumps(subject: Subject, place: Place) -> Iterator[Row]:
    jumps = at_weight(subject.oracle, 0.0)(subject.points, 0.5).local().jumps  # type: ignore[union-attr]
    yield place.equal(
        "total rate = sum over nodes", jumps.total(subject.points), jumps.rates(subject.points)[1].sum(1), 1e-8
    )


@guarded("bound of the exact denoiser")
def _bounds(subject: Subject, place: Place) -> Iterator[Row]:
    process: Superposition = subject.process  # type: ignore[assignment]
    low, x = subject.cutoffs[-1], subject.points
    totals = []
    for weight in WEIGHTS:
        oracle = at_weight(subject.oracle, weight)
        terms = bound(oracle, x, exact=True, times=subject.quadrature, decoder=oracle.decoder, cutoff=low)
        totals.append(terms.total)
    exact = -subject.oracle.log_prob(x)
    nodes, log_weight = process.support(x, 1.0)
    prior = process.prior(1, torch.float64)
    for node, weight in zip(nodes, log_weight.exp(), strict=True):
        wide = Normal(torch.zeros_like(node), prior.std.expand_as(node)).log_prob(node)  # type: ignore[attr-defined]
        exact = exact + weight * (subject.oracle.log_marginal(node, 1.0) - wide)
    own = at_weight(subject.oracle, 1.0)
    ours = bound(own, x, exact=True, times=Quadrature(96), decoder=own.decoder, cutoff=low).total
    yield place.equal("bound at weight 1 = -log q + prior mismatch", exact, ours, 1e-6)
    yield place.equal("bound is linear in the weight", (totals[0] + totals[2]) / 2, totals[1], 1e-9)
    yield place.at_most("bound of jumps is above -log q in the mean", totals[0].mean(), exact.mean())


@guarded("bounds of wrong networks")
def _wrong(subject: Subject, place: Place, networks: int) -> Iterator[Row]:
    data, h = line(DATA, REACH)
    for i in range(networks):
        scale = 0.1 if i < networks / 2 else 1.0
        for weight in (0.0, 0.5) if networks > 2 else (0.0,):  # between 0 and 1 it follows from both
            model = Perturbed(at_weight(subject.oracle, weight), scale, 100 + i)
            ours = bound(model, data, exact=True, times=subject.quadrature, cutoff=subject.cutoffs[-1]).total
            mass, which = h * (-ours).exp().sum(), f"weight {weight:g}, noise {scale:g}, network {i}"
            yield place.at_most(f"integral of exp(-bound) <= 1, {which}", 1.0, mass, 1e-6)
            if scale < 1:
                yield place.at_most(f"integral of exp(-bound) > 0.1, {which}", mass, 0.1)
