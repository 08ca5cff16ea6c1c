"""Kernels of Euclidean spaces against quadrature, moments and autograd, and of mixed products against their leaves."""

from collections.abc import Iterator

import torch
from torch import Tensor

from unnoise.generators.kolmogorov import enumerable
from unnoise.laws import Normal
from unnoise.noise import NoiseSource
from unnoise.oracles import Components, normal
from unnoise.predictions import Energy, Score, variances
from unnoise.processes import Gaussian, Product, Thinning
from unnoise.spaces import Counts, Finite, tree_leaves
from unnoise.tree import batch_size, pick
from unnoise.verify.count_kernels import count_kernels
from unnoise.verify.finite_kernels import FLOAT32, TIGHT, TRIPLES, finite_kernels
from unnoise.verify.moments import moment_composition
from unnoise.verify.rows import Place, Row
from unnoise.verify.subjects import Subject, kind_name


def gaussian_kernels(subject: Subject) -> Iterator[Row]:
    process, place = subject.process, Place(subject.name)
    assert isinstance(process, Gaussian)
    x0 = torch.tensor([-1.3, 0.2, 2.1], dtype=torch.float64).reshape(3, *[1] * len(process.space.shape))
    x0 = x0.expand(3, *process.space.shape).clone()
    if process.space.dimension > 1:
        x0 = x0 + torch.linspace(0, 0.8, process.space.dimension, dtype=torch.float64).reshape(process.space.shape)
    spread = torch.linspace(-3, 3, 13, dtype=torch.float64)
    for r, s, t in TRIPLES:
        where = "t=1-1e-5" if t > 0.999 else f"t={t:g}"
        if process.space.dimension == 1:
            yield from _gaussian_composition(process, place, x0, spread, r, s, t, where)
        else:
            yield from moment_composition(process, place, x0, r, s, t, where)
        yield from _gaussian_bayes(process, place, x0, spread, s, t, where)
        yield from _gaussian_float32(process, place, x0, s, t, where)
        yield place.equal(f"forward equation of the generator, {where}", *_forward_equation(process, x0, spread, t), 1e-8)
        moments = (x0, 0.3 + x0.square())
        back = process.inverse(process.push(moments, s, t), s, t)
        yield place.equal(f"inverse kernel undoes the transition, {where}", torch.stack(moments), torch.stack(back), TIGHT)
    yield from _gaussian_reverse(subject)


def _gaussian_composition(process: Gaussian, place: Place, x0, spread, r, s, t, where) -> Iterator[Row]:
    """int q(x_t | x_s) q(x_s | x_r) dx_s (eq:CK), by the trapezoidal rule around the peak of the integrand."""
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
    turn = torch.linspace(1, -0.5, process.space.dimension, dtype=torch.float64).reshape(process.space.shape)
    for a in spread[::3]:
        x_t = marginal.at(a * turn)
        posterior = process.posterior(x_t, x0, s, t)
        for b in spread[::3]:
            x_s = posterior.at(b * turn)
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
    x_t = marginal.at(turn)
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
        if process.covariance is not None:
            yield place.equal(f"float32 draw of the {name}, {where}", wide.at(x0), narrow.at(x0.float()), FLOAT32, True)
    moments = tuple(v.float() for v in process.push((x0, 0.3 + x0.square()), s32, t32))
    exact = torch.stack(process.inverse(tuple(v.double() for v in moments), s32, t32))
    ours = torch.stack(process.inverse(moments, s32, t32))
    yield place.equal(f"float32 inverse, {where}", exact, ours, FLOAT32, largest=True)


def _forward_equation(process: Gaussian, x0, spread, t) -> tuple[Tensor, Tensor]:
    """d/dt log q(x | x_0) against (L* q)/q at the same points."""
    law = process.marginal(x0, t)
    turn = torch.linspace(1, -0.5, process.space.dimension, dtype=torch.float64).reshape(process.space.shape)
    x = law.at(spread[::4].reshape(-1, *[1] * x0.ndim) * turn)
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
            named = Score if kind is Energy else kind
            exact = Score(score, process, x, t).to(named).value
            ours = oracle.predicting(kind)(x, t).to(named).value
            yield place.equal(f"prediction = gradient of the log-marginal, t={t:g}", exact, ours, TIGHT)
        x = process.marginal(points, 0.4).draw(NoiseSource(8, len(points)))
        reversed_drift = process.generator(0.4).reversed(lambda y: oracle.log_marginal(y, 0.4)).local(x).drift
        drift = oracle.predicting(kind)(x, 0.4).local().drift
        yield place.equal("reverse drift = reversed generator, t=0.4", reversed_drift, drift, TIGHT)
    if process.schedule.shape:
        return
    # Gaussian data of the noise's own covariance: the exact reverse kernel is Gaussian, with the optimal variance
    single = normal_data(process)
    place = Place(subject.name, "Clean")
    for s, t in ((0.3, 0.6), (1e-5, 1e-4), (0.9, 1 - 1e-4)):
        x_t = process.marginal(points, t).draw(NoiseSource(9, len(points)))
        prediction = single.native(x_t, t)
        prediction.variance = variances.OptimalVariance(single.clean_variance)  # type: ignore[attr-defined]
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


def normal_data(process: Gaussian) -> Components:
    """N(0.7, 0.4 C): data whose whitened coordinates are independent, as the noise's are."""
    eye = torch.eye(process.space.dimension, dtype=torch.float64)
    shared = eye if process.covariance is None else process.covariance.apply(eye)
    return normal(process, torch.full(process.space.shape, 0.7, dtype=torch.float64), 0.4 * shared)


def kernel_checks(subject: Subject) -> Iterator[Row]:
    if enumerable(subject.process.state_space):
        yield from finite_kernels(subject)
    elif isinstance(subject.process, Thinning):
        yield from count_kernels(subject)
    elif isinstance(subject.process, Gaussian):
        yield from gaussian_kernels(subject)
    else:
        yield from product_kernels(subject)


def product_kernels(subject: Subject) -> Iterator[Row]:
    """Mixed products: laws add over leaves, and the exact denoiser reverses the joint law."""
    for t in (0.4, 0.8):  # with few points the earlier time alone may leave nothing masked
        yield from _product_at(subject, t)


def _product_at(subject: Subject, t: float) -> Iterator[Row]:
    process, oracle, place = subject.process, subject.oracle, Place(subject.name)
    x0 = subject.points
    x_t = process.marginal(x0, t).draw(NoiseSource(11, batch_size(x0)))
    assert isinstance(process, Product)
    leaves = process.leaves
    total = sum(leaf.marginal(x0[name], t).log_prob(x_t[name]) for name, leaf in leaves.items())
    yield place.equal(f"marginal multiplies over leaves, t={t:g}", total, process.marginal(x0, t).log_prob(x_t), TIGHT)
    exact = process.generator(t).reversed(lambda x: oracle.log_marginal(x, t)).local(x_t)
    for kind in subject.kinds:
        here = Place(subject.name, kind_name(kind))
        ours = oracle.predicting(kind)(x_t, t).local()
        for path, space in tree_leaves(process.state_space):
            a, b, where = pick(exact, path), pick(ours, path), f"leaf {'.'.join(path)}, t={t:g}"
            if isinstance(space, Finite | Counts):
                yield here.equal(f"reverse rates = reversed generator, {where}", a.rates, b.rates, TIGHT)
            else:
                yield here.equal(f"reverse drift = reversed generator, {where}", a.drift, b.drift, TIGHT)
