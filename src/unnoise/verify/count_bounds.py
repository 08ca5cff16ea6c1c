"""Bounds of wrong networks on counts, against the law that their reverse process really has.

The law's forward equation is solved on counts cut off at a largest one.  The reverse of pure death never goes down, so
nothing that happens at or beyond the largest count matters below it.  Under immigration it might, and a row says how rarely
that count is reached.  In discrete time the kernels are multiplied and what goes beyond is lost: the law so found is at most
the model's own, and the inequality that is checked implies the one that is meant.

The sum of exp(-bound) over the counts 0 ... 30 (under immigration 0 ... 20) is less than the sum over all counts: that it is
at most 1 is necessary.  That no count has -log p above its bound is checked count by count.
"""

from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor

from unnoise.denoiser import AnyDenoiser
from unnoise.generators.kolmogorov import code, enumerable, matrices, solve, states
from unnoise.laws import Law
from unnoise.objectives import Quadrature, bound, decoders, default_decoder
from unnoise.predictions import CountRatio, Energy, Rates, Ratio
from unnoise.processes import Chain, Process, Thinning
from unnoise.shapes import Tree
from unnoise.tree import batch_size, repeat_rows, tile
from unnoise.verify.guard import guarded
from unnoise.verify.law_matrices import dense
from unnoise.verify.rows import Place, Row
from unnoise.verify.subjects import Subject, kind_name
from unnoise.verify.truncation import cut, cut_local, edge
from unnoise.verify.wrong import Perturbed

LIKELY = 1e-3  # log p is compared where the solver's error and the cut (1e-11, 1e-12) move it by less than 1e-7


def count_inequalities(subject: Subject, networks: int) -> Iterator[Row]:
    """Small errors on the first half of the networks, large ones on the rest."""
    process = subject.process
    alone, rises = process.space.dimension == 1, _never_down(process)
    largest = (30 if rises else 20) if alone else 6
    if not enumerable(cut(process.space, largest)):
        return
    data, last = states(cut(process.space, largest)), largest + 1 if rises else 40
    for kind in subject.kinds:
        place = Place(subject.name, kind_name(kind), "bound, continuous time")
        yield from _continuous(subject, place, kind, data, last, networks)
        ends_at_nothing = rises and kind in (CountRatio, Energy)
        if process.leaves or not alone or ends_at_nothing:
            continue  # with alpha_1 = 0 ratios at t = 1 say nothing of x_0: a chain from there is refused
        place = Place(subject.name, kind_name(kind), "bound, discrete time")
        yield from _discrete(subject, place, kind, data, last, networks)


@guarded("bounds of wrong networks on counts")
def _continuous(subject: Subject, place: Place, kind: Any, data: Tree, last: int, networks: int) -> Iterator[Row]:
    process, oracle = subject.process, subject.oracle
    for eps, decoder in _ends(process, oracle, kind):
        for i in range(networks):
            scale = 0.1 if i < networks / 2 else 1.5
            model = Perturbed(oracle.predicting(kind), scale, 100 + i)
            ours = bound(model, data, exact=True, times=Quadrature(96), cutoff=eps, decoder=decoder).total
            law = _model_law(model, eps, decoder, data, last) if _small(process, last) else None
            yield from _inequalities(place, f"noise {scale:g}, network {i}, from {eps:g}", ours, law, scale)


@guarded("bounds of wrong networks on a chain of counts")
def _discrete(subject: Subject, place: Place, kind: Any, data: Tree, last: int, networks: int) -> Iterator[Row]:
    chain = Chain(subject.process, torch.linspace(0.0, 1.0, 6, dtype=torch.float64))
    for i in range(networks):
        scale = 0.1 if i < networks / 2 else 1.5
        model = Perturbed(subject.oracle.predicting(kind, chain), scale, 100 + i)
        ours, law = bound(model, data, exact=True).total, _chain_law(model, data, last)
        yield from _inequalities(place, f"noise {scale:g}, network {i}", ours, law, scale)


def _small(process: Process, last: int) -> bool:
    return batch_size(states(cut(process.state_space, last))) <= 120


def _ends(process: Process, oracle: Any, kind: Any) -> list[tuple[float, decoders.Decoder]]:
    """Where a bound starts and what decodes there: the model itself, but for kinds of categories that have no posterior."""
    flat = list(kind.values()) if isinstance(kind, dict) else [kind]
    if any(issubclass(part, Ratio | Rates) for part in flat) or (kind is Energy and process.leaves):
        return [(0.02, oracle.decoder)]
    own = default_decoder(process)
    return [(0.0, own), (0.02, own)] if process.space.dimension == 1 else [(0.0, own)]


def _inequalities(
    place: Place, which: str, ours: Tensor, law: tuple[Tensor, Tensor | None] | None, scale: float
) -> Iterator[Row]:
    if law is not None:
        probs, at_edge = law
        if at_edge is not None:
            yield place.at_most(f"mass at the largest count of the cut model, {which}", 1e-12, at_edge)
        likely = probs > LIKELY
        if bool(likely.any()):  # a network that is far off may give all of the data next to nothing
            own = -probs[likely].log()
            yield place.at_most(f"-log p(x) of the model's own law <= bound, {which}", ours[likely], own, 1e-7)
    mass = (-ours).exp().sum()
    yield place.at_most(f"sum_x exp(-bound) <= 1, {which}", 1.0, mass, 1e-9)
    if scale < 1:
        yield place.at_most(f"sum_x exp(-bound) > 0.1, {which}", mass, 0.1)


def _never_down(process: Process) -> bool:
    """Whether no reverse process of it leads a count down."""
    if process.leaves:
        return all(_never_down(leaf) for leaf in process.leaves.values())
    return not isinstance(process, Thinning) or process.pure_death  # a question of that family alone


def _model_law(
    model: AnyDenoiser, eps: float, decoder: decoders.Decoder, data: Tree, last: int
) -> tuple[Tensor, Tensor | None]:
    """The law of x_0 under the model's reverse process and decoder, and the mass at the largest count."""
    process = model.process
    space = cut(process.state_space, last)
    points = states(space)

    def rates(times: Tensor) -> Tensor:
        return matrices(space, lambda x, t: cut_local(model(x, t).local(), x, process.state_space, last), times)

    start = process.prior(batch_size(points), torch.float64).log_prob(points).exp()
    law = solve(rates, start, 1.0, eps, 1e-11)
    at_edge = None if _never_down(process) else law[edge(process.state_space, points, last)].sum()
    if process.noiseless(eps):
        return law[code(space, data)], at_edge
    n, m = batch_size(points), batch_size(data)
    x_eps, x0 = repeat_rows(points, m), tile(data, n)
    nll = decoder.nll(process, model(x_eps, eps), x0, x_eps, eps).reshape(n, m)
    return law @ torch.where(law[:, None] > 0, (-nll).exp(), 0.0), at_edge


def _chain_law(model: AnyDenoiser, data: Tree, last: int) -> tuple[Tensor, None]:
    """The law of x_0 under a model chain, its kernels multiplied, without the paths beyond the largest count."""
    chain = cast(Chain, model.process)
    space = cut(chain.state_space, last)
    points = states(space)
    law = chain.prior(batch_size(points), torch.float64).log_prob(points).exp()
    for i in range(chain.steps, 0, -1):
        s, t = chain.grid[i - 1], chain.grid[i]

        def kernel(x: Tree, s=s, t=t) -> Law:
            return model(x, t).step(s)

        law = dense(kernel, points, points) @ law
    if not chain.noiseless(chain.cutoff):
        n, m = batch_size(points), batch_size(data)
        prediction = model(repeat_rows(points, m), chain.cutoff)
        decode = prediction.step(None).log_prob(tile(data, n))  # type: ignore[arg-type]
        return law @ decode.exp().reshape(n, m), None
    return law[code(space, data)], None
