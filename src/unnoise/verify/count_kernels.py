"""Kernels of counts against brute force, on counts cut off where what is left out is below 1e-15.

Pure death never goes up, so from sources 0 ... N the counts 0 ... N are all there is.  Immigration adds a Poisson number,
and the largest count is N plus as many as arrive with probability above 1e-17.
"""

from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor

from unnoise.count_laws import spread
from unnoise.generators.kolmogorov import matrices, solve, states
from unnoise.noise import NoiseSource
from unnoise.oracles import poisson_mixture
from unnoise.predictions import CountRatio, Energy
from unnoise.processes import Thinning
from unnoise.spaces import Finite
from unnoise.verify.finite_reverse import reverse_rates
from unnoise.verify.guard import guarded
from unnoise.verify.law_matrices import FLOAT32, TIGHT, TRIPLES, dense, marginal_matrix
from unnoise.verify.rows import Place, Row
from unnoise.verify.subjects import Subject, kind_name
from unnoise.verify.truncation import cut, cut_local

REVERSE = ((0.3, 0.6), (1e-5, 1e-4), (0.9, 1 - 1e-4))  # (s, t) of reverse kernels


def count_kernels(subject: Subject) -> Iterator[Row]:
    process, place = cast(Thinning, subject.process), Place(subject.name)
    if process.pure_death or process.space.dimension == 1:
        yield from _forward(process, place)
        yield from _carried(process, place)
    yield from _reverse(subject)
    if process.space.dimension == 1:
        yield from _poisson_data(subject)


@guarded("forward kernels")
def _forward(process: Thinning, place: Place) -> Iterator[Row]:
    """Transitions, marginals and bridges from small sources."""
    largest = 5 if process.space.dimension == 1 else 2
    last = largest if process.pure_death else largest + int(process.immigration) + spread(process.immigration)
    shape, space = process.space.shape, cut(process.state_space, last)
    data, points = Finite(largest + 1, shape).states(), cast(Tensor, states(space))

    def transition(s, t, sources=points) -> Tensor:
        return dense(lambda x: process.transition(x, s, t), sources, points)

    def marginal(t) -> Tensor:
        return marginal_matrix(process, data, points, t)

    def rates(times: Tensor) -> Tensor:
        return matrices(space, lambda x, t: cut_local(process.local(x, t), x, process.state_space, last), times)

    start = (points[:, None] == data[None]).flatten(2).all(-1).double()  # [points, data]
    for r, s, t in TRIPLES:
        where = "t=1-1e-5" if t > 0.999 else f"t={t:g}" if t > 1e-3 else f"t={t:.0e}"
        q = transition(s, t, data)
        yield place.equal(f"transition sums to 1, {where}", 1.0, q.sum(0), TIGHT)
        exact = solve(rates, start, s, t, 1e-12)
        yield place.equal(f"transition = forward equation of the generator, {where}", exact, q, TIGHT)
        for quantity, compared in (
            (
                "composition of transitions",
                lambda r, s, t: (transition(r, t, data), transition(s, t) @ transition(r, s, data)),
            ),
            ("marginal = transition of marginal", lambda r, s, t: (marginal(t), transition(s, t) @ marginal(s))),
            ("posterior = Bayes", lambda r, s, t: _bayes(process, points, data, s, t)),
        ):
            yield place.sensitive(f"{quantity}, {where}", compared, (r, s, t), TIGHT)
        s32, t32 = (torch.tensor(v, dtype=torch.float32) for v in (s, t))
        exact, ours = (transition(*pair, data) for pair in ((s32.double(), t32.double()), (s32, t32)))
        yield place.equal(f"float32 transition, {where}", exact, ours, FLOAT32, largest=True)
        yield place.equal(f"float32 marginal, {where}", marginal(t32.double()), marginal(t32), FLOAT32, largest=True)
        bayes = _bayes(process, points, data, s32.double(), t32.double())[0]
        own = _bayes(process, points, data, s32, t32)[1]
        yield place.equal(f"float32 posterior, {where}", bayes, own, FLOAT32, largest=True)
    if process.noiseless(0.0):
        yield place.equal("marginal at 0 is the data", start, marginal(0.0), TIGHT)


def _bayes(process: Thinning, points: Tensor, data: Tensor, s, t) -> tuple[Tensor, Tensor]:
    """q(x_s | x_t, x_0) for all triples with q(x_t | x_0) > 0: by Bayes' rule, and ours."""
    forward = dense(lambda x: process.transition(x, s, t), points, points)  # [x_t, x_s]
    at_s, at_t = (marginal_matrix(process, data, points, v) for v in (s, t))  # [x, x_0]
    possible = at_t > 1e-30
    i, j = possible.nonzero().unbind(1)
    law = process.posterior(points[i], data[j], s, t)
    own = torch.stack([law.log_prob(x.expand(len(i), *x.shape)) for x in points], 1).exp()
    return (forward[:, None, :] * at_s.T[None] / at_t[:, :, None])[possible], own


@guarded("push and inverse")
def _carried(process: Thinning, place: Place) -> Iterator[Row]:
    """`push` against the kernels, and `inverse` against `push`."""
    shape = process.space.shape
    log_v = NoiseSource(7, 4).normal((*shape, 6)).log_softmax(-1)
    for s, t in ((0.1, 0.7), (0.9, 1 - 1e-4)):
        pushed = process.push(log_v, s, t)
        counts = torch.arange(6).reshape(-1, *[1] * len(shape)).expand(-1, *shape)
        targets = torch.arange(pushed.shape[-1]).expand(*counts.shape, -1)
        kernel = process.transition(counts, s, t).log_terms(targets).exp()  # [sources, *shape, targets]
        exact = torch.einsum("b...s,s...t->b...t", log_v.exp(), kernel)
        yield place.equal(f"push = sum over sources, t={t:g}", exact, pushed.exp(), TIGHT)
        if not process.pure_death:
            continue
        back = process.inverse(pushed.exp(), s, t)
        row = place.equal(f"inverse kernel undoes the transition, t={t:g}", log_v.exp(), back, TIGHT)
        if not row.ok:
            signs = NoiseSource(7, 16).at("signs").normal((*shape, 6)).sign()
            magnified = float(process.inverse(signs, s, t).abs().max())
            row = place.undone(row.quantity, log_v.exp(), back, TIGHT, magnified)
        yield row
        narrow = pushed.exp().float()
        exact, ours = process.inverse(narrow.double(), s, t), process.inverse(narrow, s, t)
        yield place.equal(f"float32 inverse, t={t:g}", exact, ours, FLOAT32, largest=True)


def _reverse(subject: Subject) -> Iterator[Row]:
    """The rates of the exact denoiser against the reversed generator."""
    process, oracle = subject.process, subject.oracle
    for kind in subject.kinds:
        view, place = oracle.predicting(kind), Place(subject.name, kind_name(kind))
        for _, t in REVERSE:
            possible = oracle.log_marginal(subject.points, t) > -700
            yield from reverse_rates(process, oracle, view, subject.points[possible], t, place)


@guarded("reverse kernel of Poisson data")
def _poisson_data(subject: Subject) -> Iterator[Row]:
    """Poisson data: the kernel is exact over any step, and so is the law of the data."""
    process = cast(Thinning, subject.process)
    shape = process.space.shape
    oracle = poisson_mixture(process, torch.ones(1), torch.full((1, *shape), 2.3, dtype=torch.float64))
    points = Finite(21, shape).states()
    here, targets = points[:8].repeat_interleave(21, 0), points.repeat(8, *[1] * len(shape))
    for kind in subject.kinds:
        if kind in (CountRatio, Energy):
            continue  # freezes its rates
        place = Place(subject.name, kind_name(kind))
        for s, t in REVERSE:
            prediction = oracle.predicting(kind)(here, t)
            forward = process.transition(targets, s, t).log_prob(here)
            exact = (forward + oracle.log_marginal(targets, s) - oracle.log_marginal(here, t)).exp()
            ours = prediction.step(s).log_prob(targets).exp()
            yield place.equal(f"reverse kernel of Poisson data = Bayes, t={t:g}", exact, ours, TIGHT)
            exact = oracle.log_decode(targets, here, t).exp()
            ours = prediction.step(None).log_prob(targets).exp()  # type: ignore[arg-type]
            yield place.equal(f"law of Poisson data = Bayes, t={t:g}", exact, ours, TIGHT)
            s32, t32 = (torch.tensor(v, dtype=torch.float32).expand(len(here)) for v in (s, t))
            wide = oracle.predicting(kind)(here, t32.double())
            narrow = kind(wide.value.float(), process, here, t32)  # type: ignore[attr-defined]
            exact, ours = (p.step(v).log_prob(targets).exp() for p, v in ((wide, s32.double()), (narrow, s32)))
            yield place.equal(f"float32 reverse kernel, t={t:g}", exact, ours, FLOAT32, largest=True)
