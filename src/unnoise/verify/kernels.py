"""Which checks of kernels a process is put to, and those of mixed products, against their leaves."""

from collections.abc import Iterator
from functools import singledispatch
from typing import Any

from unnoise.generators.kolmogorov import enumerable
from unnoise.noise import NoiseSource
from unnoise.processes import CoxIngersollRoss, Gaussian, HeatProcess, JumpDiffusion, Process, Thinning, WrightFisher
from unnoise.shapes import AnyState
from unnoise.spaces import tree_leaves
from unnoise.tree import batch_size, pick
from unnoise.verify.count_kernels import count_kernels
from unnoise.verify.finite_kernels import finite_kernels
from unnoise.verify.gaussian_kernels import gaussian_kernels
from unnoise.verify.generic_kernels import generic_kernels, kernels_by_laws
from unnoise.verify.guard import guarded
from unnoise.verify.law_matrices import TIGHT
from unnoise.verify.rows import Place, Row
from unnoise.verify.subjects import Subject, kind_name


@singledispatch
def kernels_of(process: Process, subject: Subject) -> Iterator[Row]:
    """The checks of a process's kernels, by its class; open to registration.

    What is not registered is asked for its space: where the states can be listed all of them are, the leaves of a product
    are put together, and any other process answers for itself, by its laws and its generator (`generic_kernels`).
    """
    if enumerable(process.state_space):
        return finite_kernels(subject)
    return product_kernels(subject) if process.leaves else generic_kernels(subject)


@kernels_of.register
def _(process: Thinning, subject: Subject) -> Iterator[Row]:
    return count_kernels(subject)


@kernels_of.register
def _(process: Gaussian, subject: Subject) -> Iterator[Row]:
    return gaussian_kernels(subject)


@kernels_of.register(HeatProcess)
@kernels_of.register(JumpDiffusion)
@kernels_of.register(WrightFisher)
@kernels_of.register(CoxIngersollRoss)
def _(process: HeatProcess | JumpDiffusion | WrightFisher | CoxIngersollRoss, subject: Subject) -> Iterator[Row]:
    return kernels_by_laws(subject)


@guarded("kernels")
def kernel_checks(subject: Subject, networks: int = 2) -> Iterator[Row]:
    yield from kernels_of(subject.process, subject)


def product_kernels(subject: Subject) -> Iterator[Row]:
    """Mixed products: laws add over leaves, and the exact denoiser reverses the joint law."""
    for t in (0.4, 0.8):  # with few points the earlier time alone may leave nothing masked
        yield from _product_at(subject, t)


@guarded("laws and reverse generator of a product")
def _product_at(subject: Subject, t: float) -> Iterator[Row]:
    process, oracle, place = subject.process, subject.oracle, Place(subject.name)
    x0 = subject.points
    x_t: AnyState = process.marginal(x0, t).draw(NoiseSource(11, batch_size(x0)))
    total: Any = sum(leaf.marginal(x0[name], t).log_prob(x_t[name]) for name, leaf in process.leaves.items())
    yield place.equal(f"marginal multiplies over leaves, t={t:g}", total, process.marginal(x0, t).log_prob(x_t), TIGHT)
    exact = process.generator(t).reversed(lambda x: oracle.log_marginal(x, t)).local(x_t)
    for kind in subject.kinds:
        here = Place(subject.name, kind_name(kind))
        ours = oracle.predicting(kind)(x_t, t).local()
        for path, _ in tree_leaves(process.state_space):
            a, b, where = pick(exact, path), pick(ours, path), f"leaf {'.'.join(path)}, t={t:g}"
            if a.log_rates is not None:
                yield here.equal(f"reverse rates = reversed generator, {where}", a.rates, b.rates, TIGHT)
            if a.drift is not None:
                yield here.equal(f"reverse drift = reversed generator, {where}", a.drift, b.drift, TIGHT)
