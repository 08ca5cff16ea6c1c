"""Kernels against brute force: dense matrices on finite spaces, quadrature on Euclidean ones.

On a finite space every law is written out as a matrix over all states (through nothing but `log_prob`), and the transition
is compared with the solution of the generator's own forward equation: kernels and generator must be one process.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from unnoise.generators.generator import pick, tree_leaves
from unnoise.generators.kolmogorov import enumerable, matrices, solve, states
from unnoise.laws import Categorical, Joint, Law, Normal
from unnoise.noise import Noise as NoiseSource
from unnoise.oracles import Oracle, normal
from unnoise.predictions import Score, variances
from unnoise.processes import FiniteProcess, Gaussian, Process, Product
from unnoise.shapes import Tree
from unnoise.spaces import Finite, batch_size, map_leaves
from unnoise.verify.rows import Place, Row
from unnoise.verify.subjects import Subject, kind_name

# (r, s, t): the middle of time, and within 1e-4 of both ends
TRIPLES = ((0.1, 0.35, 0.8), (0.0, 3e-5, 1e-4), (1 - 1e-4, 1 - 5e-5, 1 - 1e-5))
TIGHT, FLOAT32 = 1e-10, 1e-5


def dense(law_of: Callable[[Tree], Law], sources: Tree, targets: Tree) -> Tensor:
    """P[y, x]: the probability of each target under the law of each source."""
    n, m = batch_size(sources), batch_size(targets)
    repeated = map_leaves(lambda x: x.repeat_interleave(m, 0), sources)
    tiled = map_leaves(lambda x: x.repeat(n, *[1] * (x.ndim - 1)), targets)
    return law_of(repeated).log_prob(tiled).exp().reshape(n, m).T


def marginal_matrix(process: Process, data: Tree, points: Tree, t) -> Tensor:
    return dense(lambda x: process.marginal(x, t), data, points)


def transition_matrix(process: Process, points: Tree, s, t) -> Tensor:
    return dense(lambda x: process.transition(x, s, t), points, points)


def finite_kernels(subject: Subject) -> Iterator[Row]:
    process, place = subject.process, Place(subject.name)
    points, data = states(process.state_space), states(process.space)
    if batch_size(points) > 100:
        return
    noised = float(dense(lambda x: process.marginal(x, 0.0), data, data).diagonal().min()) < 1 - 1e-12

    def transition(s, t) -> Tensor:
        return transition_matrix(process, points, s, t)

    def marginal(t) -> Tensor:
        return marginal_matrix(process, data, points, t)

    def rates(times: Tensor) -> Tensor:
        return matrices(process.state_space, process.local, times)

    eye = torch.eye(batch_size(points), dtype=torch.float64)
    for r, s, t in TRIPLES:
        where = f"t={t:g}" if t > 1e-3 else f"t={t:.0e}"
        where = "t=1-1e-5" if t > 0.999 else where
        q = transition(s, t)
        yield place.equal(f"transition sums to 1, {where}", 1.0, q.sum(0), TIGHT)
        yield place.equal(
            f"transition = forward equation of the generator, {where}", solve(rates, eye, s, t, 1e-12), q, TIGHT
        )
        yield place.equal(f"composition of transitions, {where}", transition(r, t), q @ transition(r, s), TIGHT)
        yield place.equal(f"marginal = transition of marginal, {where}", marginal(t), q @ marginal(s), TIGHT)
        yield place.equal(f"posterior = Bayes, {where}", *_bayes(process, points, data, s, t), TIGHT)
        single = (torch.tensor(v, dtype=torch.float32) for v in (s, t))
        s32, t32 = single
        exact = transition(s32.double(), t32.double())
        yield place.equal(f"float32 transition, {where}", exact, transition(s32, t32), FLOAT32, largest=True)
        r32 = torch.tensor(r, dtype=torch.float32)
        chained = transition(s32, t32) @ transition(r32, s32)
        direct = transition(r32.double(), t32.double())
        yield place.equal(f"float32 composition, {where}", direct, chained, FLOAT32, largest=True)
        yield place.equal(f"float32 marginal, {where}", marginal(t32.double()), marginal(t32), FLOAT32, largest=True)
        bayes = _bayes(process, points, data, s32.double(), t32.double())[0]
        own = _bayes(process, points, data, s32, t32)[1]
        yield place.equal(f"float32 posterior, {where}", bayes, own, FLOAT32, largest=True)
    if not noised:
        start = marginal(0.0)
        yield place.equal("marginal at 0 is the data", (start > 0.5).double(), start, TIGHT)
    if isinstance(process, FiniteProcess):
        yield from _inverse(process, place)
    yield from _reverse(subject)


def _bayes(process: Process, points: Tree, data: Tree, s, t) -> tuple[Tensor, Tensor]:
    """q(x_s | x_t, x_0) for all triples with q(x_t | x_0) > 0: by Bayes' rule, and ours."""
    n, m = batch_size(points), batch_size(data)
    x_t = map_leaves(lambda x: x.repeat_interleave(m, 0), points)
    x0 = map_leaves(lambda x: x.repeat(n, *[1] * (x.ndim - 1)), data)
    forward = transition_matrix(process, points, s, t)  # [x_t, x_s]
    at_s = marginal_matrix(process, data, points, s)  # [x_s, x_0]
    at_t = marginal_matrix(process, data, points, t)  # [x_t, x_0]
    bayes = forward[:, None, :] * at_s.T[None] / at_t[:, :, None]
    possible = at_t > 1e-30
    pairs = possible.flatten()
    own = _posterior_matrix(process, map_leaves(lambda x: x[pairs], x_t), map_leaves(lambda x: x[pairs], x0), points, s, t)
    return bayes[possible], own


def _posterior_matrix(process: Process, x_t: Tree, x0: Tree, points: Tree, s, t) -> Tensor:
    rows, n = batch_size(x_t), batch_size(points)
    law = process.posterior(
        map_leaves(lambda x: x.repeat_interleave(n, 0), x_t), map_leaves(lambda x: x.repeat_interleave(n, 0), x0), s, t
    )
    tiled = map_leaves(lambda x: x.repeat(rows, *[1] * (x.ndim - 1)), points)
    return law.log_prob(tiled).exp().reshape(rows, n)


def _inverse(process: FiniteProcess, place: Place) -> Iterator[Row]:
    shape = (4, *process.space.shape, process.state_space.size)
    log_v = NoiseSource(7, 4).normal(shape[1:]).log_softmax(-1)
    for s, t in ((0.1, 0.7), (0.9, 1 - 1e-4)):
        back = process.inverse(process.push(log_v, s, t).exp(), s, t)
        yield place.equal(f"inverse kernel undoes the transition, t={t:g}", log_v.exp(), back, TIGHT)
    for s, t in ((0.1, 0.7), (0.0, 1e-4), (0.9, 1 - 1e-4)):
        narrow = process.push(log_v, s, t).exp().float()
        exact = process.inverse(narrow.double(), s, t)
        ours = process.inverse(narrow, s, t)
        yield place.equal(f"float32 inverse, t={t:g}", exact, ours, FLOAT32, largest=True)


def _leaf_laws(law: Law, path: tuple[str, ...]) -> Categorical:
    for name in path:
        assert isinstance(law, Joint)
        law = law.leaves[name]
    assert isinstance(law, Categorical)
    return law


def _reverse(subject: Subject) -> Iterator[Row]:
    """The reverse of the exact denoiser against Bayes' rule on the enumerated law, and against the reversed generator."""
    process, oracle = subject.process, subject.oracle
    points, data = states(process.state_space), states(process.space)
    law = oracle.log_prob(data).exp()
    for kind in subject.kinds:
        place = Place(subject.name, kind_name(kind))
        view = oracle.predicting(kind)
        for s, t in ((0.3, 0.6), (1e-5, 1e-4), (0.9, 1 - 1e-4)):
            at_t = marginal_matrix(process, data, points, t) @ law
            seen = at_t > 1e-12
            here = map_leaves(lambda x, seen=seen: x[seen], points)
            if _has_exact_step(kind):
                at_s = marginal_matrix(process, data, points, s) @ law
                kernel = transition_matrix(process, points, s, t)
                joint = kernel * at_s / at_t[:, None].clamp_min(1e-300)  # [x_t, x_s]
                step = view(here, t).step(s)
                yield from _float32_reverse(process, view, here, s, t, place)
                for path, space in tree_leaves(process.state_space):
                    assert isinstance(space, Finite)
                    one_hot = torch.nn.functional.one_hot(pick(points, path).reshape(len(at_t), -1), space.size).double()
                    exact = torch.einsum("ts,skc->tkc", joint[seen], one_hot)
                    ours = _leaf_laws(step, path).probs.reshape(exact.shape)
                    yield place.equal(f"reverse kernel = Bayes, t={t:g}", exact, ours, TIGHT)
            yield from _reverse_rates(process, oracle, view, here, t, place)


def _float32_reverse(process: Process, view: Oracle, here: Tree, s: float, t: float, place: Place) -> Iterator[Row]:
    """The reverse kernel from float32 logits and times."""
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


def _reverse_rates(process: Process, oracle: Oracle, view: Oracle, here: Tree, t: float, place: Place) -> Iterator[Row]:
    exact = process.generator(t).reversed(lambda x: oracle.log_marginal(x, t)).local(here)
    ours = view(here, t).local()
    for path, _ in tree_leaves(process.state_space):
        a, b = (pick(tree, path).log_rates.exp() for tree in (exact, ours))
        yield place.equal(f"reverse rates = reversed generator, t={t:g}", a, b, TIGHT)


def gaussian_kernels(subject: Subject) -> Iterator[Row]:
    process, place = subject.process, Place(subject.name)
    assert isinstance(process, Gaussian)
    x0 = torch.tensor([-1.3, 0.2, 2.1], dtype=torch.float64).reshape(3, *[1] * len(process.space.shape))
    x0 = x0.expand(3, *process.space.shape).clone()
    spread = torch.linspace(-3, 3, 13, dtype=torch.float64)
    for r, s, t in TRIPLES:
        where = "t=1-1e-5" if t > 0.999 else f"t={t:g}"
        if process.space.dimension == 1:
            yield from _gaussian_composition(process, place, x0, spread, r, s, t, where)
        yield from _gaussian_bayes(process, place, x0, spread, s, t, where)
        yield from _gaussian_float32(process, place, x0, s, t, where)
        yield place.equal(f"forward equation of the generator, {where}", *_forward_equation(process, x0, spread, t), 1e-8)
        moments = (x0, 0.3 + x0.square())
        back = process.inverse(process.push(moments, s, t), s, t)
        yield place.equal(f"inverse kernel undoes the transition, {where}", torch.stack(moments), torch.stack(back), TIGHT)
    yield from _gaussian_reverse(subject)


def _gaussian_composition(process: Gaussian, place: Place, x0, spread, r, s, t, where) -> Iterator[Row]:
    """int q(x_t | x_s) q(x_s | x_r) dx_s, by the trapezoidal rule around the peak of the integrand."""
    x0 = x0 * (100 * process.transition(x0, r, t).std).clamp_max(1)  # else x itself is rounded by more than is tested
    direct = process.transition(x0, r, t)
    middle = process.transition(x0, r, s)
    x_t = direct.mean + direct.std * spread[:, None, None].reshape(-1, *[1] * x0.ndim)
    gain, step = process.schedule.step_alpha(s, t), process.schedule.step_variance(s, t)
    precision = 1 / middle.std.square() + gain.square() / step
    peak = (middle.mean / middle.std.square() + gain * x_t / step) / precision
    h = 0.1
    z = torch.arange(-9, 9 + h / 2, h, dtype=torch.float64)
    total = torch.zeros(len(spread), len(x0), dtype=torch.float64)
    for value in z:
        node = peak + value / precision.sqrt()
        for i in range(len(spread)):
            log = process.transition(node[i], s, t).log_prob(x_t[i]) + middle.log_prob(node[i])
            total[i] += h * log.exp() / precision.sqrt().flatten()[0]
    exact = torch.stack([direct.log_prob(x) for x in x_t]).exp()
    scale = exact.max()
    yield place.equal(f"composition of transitions, {where}", exact / scale, total / scale, TIGHT)


def _gaussian_bayes(process: Gaussian, place: Place, x0, spread, s, t, where) -> Iterator[Row]:
    marginal = process.marginal(x0, t)
    exact, ours = [], []
    for a in spread[::3]:
        x_t = marginal.mean + a * marginal.std
        posterior = process.posterior(x_t, x0, s, t)
        for b in spread[::3]:
            x_s = posterior.mean + b * posterior.std
            exact.append(
                process.transition(x_s, s, t).log_prob(x_t) + process.marginal(x0, s).log_prob(x_s) - marginal.log_prob(x_t)
            )
            ours.append(posterior.log_prob(x_s))
    if 1e-3 < t < 0.999:  # nearer to the ends the densities themselves are rounded by more than the tolerance
        yield place.equal(f"posterior = Bayes (log density), {where}", torch.cat(exact), torch.cat(ours), TIGHT)
    # the same in moments: precisions add
    variance_s, gain, step = (
        process.schedule.sigma(s).square(),
        process.schedule.step_alpha(s, t),
        process.schedule.step_variance(s, t),
    )
    x_t = marginal.mean + marginal.std
    std = (variance_s * step / (step + gain.square() * variance_s)).sqrt()
    mean = (process.schedule.alpha(s) * x0 * step + gain * x_t * variance_s) / (step + gain.square() * variance_s)
    posterior = process.posterior(x_t, x0, s, t)
    yield place.equal(f"posterior mean = Bayes, {where}", mean, posterior.mean, TIGHT)
    yield place.equal(f"posterior std = Bayes, {where}", std, posterior.std, TIGHT, largest=True)


def _gaussian_float32(process: Gaussian, place: Place, x0, s, t, where) -> Iterator[Row]:
    s32, t32 = (torch.tensor(v, dtype=torch.float32) for v in (s, t))
    for name, law in (
        ("marginal", lambda x: process.marginal(x, t32)),
        ("transition", lambda x: process.transition(x, s32, t32)),
        ("posterior", lambda x: process.posterior(0.5 * x, x, s32, t32)),
    ):
        wide, narrow = law(x0), law(x0.float())
        exact, ours = (torch.cat([v.mean.flatten(), v.std.expand_as(v.mean).flatten()]) for v in (wide, narrow))
        yield place.equal(f"float32 {name}, {where}", exact, ours, FLOAT32, largest=True)
    moments = tuple(v.float() for v in process.push((x0, 0.3 + x0.square()), s32, t32))
    exact = torch.stack(process.inverse(tuple(v.double() for v in moments), s32, t32))
    ours = torch.stack(process.inverse(moments, s32, t32))
    yield place.equal(f"float32 inverse, {where}", exact, ours, FLOAT32, largest=True)


def _forward_equation(process: Gaussian, x0, spread, t) -> tuple[Tensor, Tensor]:
    """d/dt log q(x | x_0) against (L* q)/q at the same points."""
    law = process.marginal(x0, t)
    x = law.mean + law.std * spread[::4].reshape(-1, *[1] * x0.ndim)
    x, start = x.flatten(0, 1), x0.repeat(len(spread[::4]), *[1] * (x0.ndim - 1))
    clock = torch.full((len(x),), t, dtype=torch.float64, requires_grad=True)
    log_q = process.marginal(start, clock).log_prob(x)
    slope = torch.autograd.grad(log_q.sum(), clock)[0]
    flow = process.generator(t).adjoint(lambda y: process.marginal(start, t).log_prob(y).exp(), x)
    scale = slope.abs().max()
    return slope / scale, flow / log_q.detach().exp() / scale


def _gaussian_reverse(subject: Subject) -> Iterator[Row]:
    process, oracle = subject.process, subject.oracle
    assert isinstance(process, Gaussian)
    points = subject.points[:20]
    for kind in subject.kinds:
        place = Place(subject.name, kind_name(kind))
        for t in (1e-4, 0.4, 1 - 1e-4):
            x = process.marginal(points, t).draw(NoiseSource(8, len(points)))
            leaf = x.clone().requires_grad_()
            score = torch.autograd.grad(oracle.log_marginal(leaf, t).sum(), leaf)[0]
            exact = Score(score, process, x, t).to(kind).value
            ours = oracle.predicting(kind)(x, t).value  # type: ignore[attr-defined]
            yield place.equal(f"prediction = gradient of the log-marginal, t={t:g}", exact, ours, TIGHT)
    if process.space.dimension != 1:
        return
    # Gaussian data: the exact reverse kernel is Gaussian, with the optimal variance
    single = normal(
        process, torch.full(process.space.shape, 0.7, dtype=torch.float64), torch.tensor([[0.4]], dtype=torch.float64)
    )
    place = Place(subject.name, "Clean")
    for s, t in ((0.3, 0.6), (1e-5, 1e-4), (0.9, 1 - 1e-4)):
        x_t = process.marginal(points, t).draw(NoiseSource(9, len(points)))
        prediction = single.native(x_t, t)
        prediction.variance = variances.Optimal(single.clean_variance)  # type: ignore[attr-defined]
        law = prediction.step(s)
        assert isinstance(law, Normal)
        # in moments: the marginal at s is Gaussian, and precisions add
        alpha_s, gain = process.schedule.alpha(s), process.schedule.step_alpha(s, t)
        at_s, step = 0.4 * alpha_s.square() + process.schedule.sigma(s).square(), process.schedule.step_variance(s, t)
        total = step + gain.square() * at_s
        mean, std = (0.7 * alpha_s * step + gain * x_t * at_s) / total, (at_s * step / total).sqrt()
        yield place.equal(f"reverse mean = Bayes, t={t:g}", mean, law.mean, TIGHT)
        yield place.equal(f"reverse std = Bayes (optimal variance), t={t:g}", std, law.std, TIGHT, largest=True)
        rounded = x_t.float()
        wide, narrow = (single.native(x, t).step(s) for x in (rounded.double(), rounded))
        exact, ours = (torch.cat([v.mean.flatten(), v.std.flatten()]) for v in (wide, narrow))  # type: ignore[attr-defined]
        yield place.equal(f"float32 reverse kernel, t={t:g}", exact, ours, FLOAT32, largest=True)
        if t > 1e-3:  # nearer to 0 the densities themselves are rounded by more than the tolerance
            x_s = law.draw(NoiseSource(10, len(points)))
            exact = process.transition(x_s, s, t).log_prob(x_t) + single.log_marginal(x_s, s) - single.log_marginal(x_t, t)
            yield place.equal(f"reverse kernel = Bayes (log density), t={t:g}", exact, law.log_prob(x_s), TIGHT)


def kernel_checks(subject: Subject) -> Iterator[Row]:
    if enumerable(subject.process.state_space):
        yield from finite_kernels(subject)
    elif isinstance(subject.process, Gaussian):
        yield from gaussian_kernels(subject)
    else:
        yield from product_kernels(subject)


def product_kernels(subject: Subject) -> Iterator[Row]:
    """Mixed products: laws add over leaves, and the exact denoiser reverses the joint law."""
    process, oracle, place = subject.process, subject.oracle, Place(subject.name)
    x0, t = subject.points, 0.4
    x_t = process.marginal(x0, t).draw(NoiseSource(11, batch_size(x0)))
    assert isinstance(process, Product)
    leaves = process.leaves
    total = sum(leaf.marginal(x0[name], t).log_prob(x_t[name]) for name, leaf in leaves.items())
    yield place.equal("marginal multiplies over leaves", total, process.marginal(x0, t).log_prob(x_t), TIGHT)
    exact = process.generator(t).reversed(lambda x: oracle.log_marginal(x, t)).local(x_t)
    for kind in subject.kinds:
        here = Place(subject.name, kind_name(kind))
        ours = oracle.predicting(kind)(x_t, t).local()
        for path, space in tree_leaves(process.state_space):
            a, b = pick(exact, path), pick(ours, path)
            if isinstance(space, Finite):
                yield here.equal(f"reverse rates = reversed generator, leaf {'.'.join(path)}", a.rates, b.rates, TIGHT)
            else:
                yield here.equal(f"reverse drift = reversed generator, leaf {'.'.join(path)}", a.drift, b.drift, TIGHT)
