"""The reverse of the exact denoiser on finite spaces, against Bayes' rule on the listed law and the reversed generator."""

from collections.abc import Iterator

import torch
from torch import Tensor

from unnoise.generators.kolmogorov import states
from unnoise.laws import Categorical, Joint, Law
from unnoise.oracles import Oracle
from unnoise.processes import FiniteProcess, Process
from unnoise.shapes import AnyState, Tree
from unnoise.spaces import tree_leaves
from unnoise.tree import batch_size, map_leaves, pick
from unnoise.verify.guard import guarded
from unnoise.verify.law_matrices import FLOAT32, TIGHT, grid_triples, marginal_matrix, transition_matrix
from unnoise.verify.rows import Place, Row
from unnoise.verify.subjects import Subject, kind_name


def _leaf_laws(law: Law, path: tuple[str, ...]) -> Categorical:
    for name in path:
        assert isinstance(law, Joint)
        law = law.leaves[name]
    assert isinstance(law, Categorical)
    return law


def finite_reverse(subject: Subject) -> Iterator[Row]:
    """The reverse of the exact denoiser against Bayes' rule on the enumerated law, and against the reversed generator."""
    process = subject.process
    points, data = states(process.state_space), states(process.space)
    law = subject.oracle.log_prob(data).exp()
    triples = grid_triples(process) if not process.has_generator else None  # type: ignore[arg-type]
    pairs = [(0.3, 0.6), (1e-5, 1e-4), (0.9, 1 - 1e-4)] if triples is None else [(s, t) for _, s, t in triples]
    for kind in subject.kinds:
        place = Place(subject.name, kind_name(kind))
        for s, t in pairs:
            at_t = marginal_matrix(process, data, points, t) @ law
            seen = at_t > 1e-12
            here = map_leaves(lambda x, seen=seen: x[seen], points)
            if _has_exact_step(kind):
                at_s = marginal_matrix(process, data, points, s) @ law
                kernel = transition_matrix(process, points, s, t)
                joint = kernel * at_s / at_t[:, None].clamp_min(1e-300)  # [x_t, x_s]
                yield from _reverse_step(subject, place, kind, here, joint[seen], s, t)
            if process.has_generator:
                yield from reverse_rates(process, subject.oracle, subject.oracle.predicting(kind), here, t, place)


@guarded("reverse kernel = Bayes")
def _reverse_step(subject: Subject, place: Place, kind, here: Tree, joint: Tensor, s: float, t: float) -> Iterator[Row]:
    """`joint` is the law of all states x_s, by Bayes' rule, given each of the states x_t here."""
    process, view = subject.process, subject.oracle.predicting(kind)
    points = states(process.state_space)
    step = view(here, t).step(s)
    yield from _float32_reverse(process, view, here, s, t, place)
    for path, space in tree_leaves(process.state_space):
        size = space.size  # type: ignore[attr-defined]
        one_hot = torch.nn.functional.one_hot(pick(points, path).reshape(joint.shape[1], -1), size).double()
        exact = torch.einsum("ts,skc->tkc", joint, one_hot)
        ours = _leaf_laws(step, path).probs.reshape(exact.shape)
        yield place.equal(f"reverse kernel = Bayes, t={t:g}", exact, ours, TIGHT)


def _float32_reverse(process: Process, view: Oracle, here: AnyState, s: float, t: float, place: Place) -> Iterator[Row]:
    """The reverse kernel from float32 logits and times."""
    process = process.base
    if not isinstance(process, FiniteProcess):
        return
    s32, t32 = (torch.tensor(v, dtype=torch.float32).expand(batch_size(here)) for v in (s, t))
    theta = view(here, t32.double()).log_theta()  # type: ignore[attr-defined]
    exact = process.reverse_step(here, theta, s32.double(), t32.double()).probs
    ours = process.reverse_step(here, theta.float(), s32, t32).probs
    yield place.equal(f"float32 reverse kernel, t={t:g}", exact, ours, FLOAT32, largest=True)


def _has_exact_step(kind) -> bool:
    """Ratios and rates of a finite step are held and leapt, an approximation by name."""
    if isinstance(kind, dict):
        return all(_has_exact_step(part) for part in kind.values())
    return kind.__name__ in ("Posterior", "RawPosterior")


@guarded("reverse rates = reversed generator")
def reverse_rates(process: Process, oracle: Oracle, view: Oracle, here: Tree, t: float, place: Place) -> Iterator[Row]:
    exact = process.generator(t).reversed(lambda x: oracle.log_marginal(x, t)).local(here)
    ours = view(here, t).local()
    for path, _ in tree_leaves(process.state_space):
        a, b = (pick(tree, path).log_rates.exp() for tree in (exact, ours))
        yield place.equal(f"reverse rates = reversed generator, t={t:g}", a, b, TIGHT)
