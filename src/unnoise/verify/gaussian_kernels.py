"""Kernels of Euclidean spaces against quadrature, moments and autograd."""

from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor

from unnoise.generators import Local
from unnoise.laws import Normal
from unnoise.noise import NoiseSource
from unnoise.oracles import Components, normal
from unnoise.predictions import Energy, Score, variances
from unnoise.processes import Gaussian
from unnoise.verify.guard import guarded
from unnoise.verify.law_matrices import FLOAT32, TIGHT, TRIPLES
from unnoise.verify.moments import moment_composition
from unnoise.verify.rows import Place, Row
from unnoise.verify.subjects import Subject, kind_name


def gaussian_kernels(subject: Subject) -> Iterator[Row]:
    process, place = cast(Gaussian, subject.process), Place(subject.name)
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
        yield from _gaussian_forward(process, place, x0, spread, s, t, where)
    yield from _gaussian_reverse(subject)


@guarded("forward equation, inverse kernel")
def _gaussian_forward(process: Gaussian, place: Place, x0, spread, s, t, where) -> Iterator[Row]:
    quantity = f"forward equation of the generator, {where}"
    yield place.sensitive(quantity, lambda t: _forward_equation(process, x0, spread, t), (t,), 1e-8)
    moments = (x0, 0.3 + x0.square())
    back = process.inverse(process.push(moments, s, t), s, t)
    gain = process.schedule.step_alpha(s, t).min()
    magnified = max(float(1 / gain), float((moments[1] + process.schedule.step_variance(s, t).max() / gain.square()).max()))
    quantity = f"inverse kernel undoes the transition, {where}"
    yield place.undone(quantity, torch.stack(moments), torch.stack(back), TIGHT, magnified)


@guarded("composition of transitions")
def _gaussian_composition(process: Gaussian, place: Place, x0, spread, r, s, t, where) -> Iterator[Row]:
    """int q(x_t | x_s) q(x_s | x_r) dx_s (eq:CK), by the trapezoidal rule around the peak of the integrand."""
    quantity = f"composition of transitions, {where}"
    yield place.sensitive(quantity, lambda r, s, t: _composed(process, x0, spread, r, s, t), (r, s, t), TIGHT)


def _composed(process: Gaussian, x0, spread, r, s, t) -> tuple[Tensor, Tensor]:
    x0 = x0 * (100 * process.transition(x0, r, t).std).clamp_max(1)  # else x itself is rounded by more than is tested
    direct = process.transition(x0, r, t)
    middle = process.transition(x0, r, s)
    x_t = direct.mean + direct.std * spread[:, None, None].reshape(-1, *[1] * x0.ndim)
    gain, step = process.schedule.step_alpha(s, t), process.schedule.step_variance(s, t)
    precision = 1 / middle.std.square() + gain.square() / step
    peak = (middle.mean / middle.std.square() + gain * x_t / step) / precision
    h = 0.1
    z = torch.arange(-9, 9 + h / 2, h, dtype=torch.float64)
    node = peak + (z / precision.sqrt().flatten()[0]).reshape(-1, *[1] * peak.ndim)  # [z, spread, points, *shape]
    shape = node.shape[:3]

    def flat(x: Tensor) -> Tensor:
        return x.expand(node.shape).reshape(-1, *x0.shape[1:])

    law = Normal(flat(middle.mean), flat(middle.std))
    log = process.transition(flat(node), s, t).log_prob(flat(x_t)) + law.log_prob(flat(node))
    total = (h * log.exp() / precision.sqrt().flatten()[0]).reshape(shape).sum(0)
    exact = torch.stack([direct.log_prob(x) for x in x_t]).exp()
    scale = exact.max()
    return exact / scale, total / scale


@guarded("posterior = Bayes")
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

    def moments(s, t, which) -> tuple[Tensor, Tensor]:
        """The same in moments: precisions add."""
        schedule = process.schedule
        variance_s, gain, step = schedule.sigma(s).square(), schedule.step_alpha(s, t), schedule.step_variance(s, t)
        x_t = marginal.at(turn)
        std = (variance_s * step / (step + gain.square() * variance_s)).sqrt()
        mean = (schedule.alpha(s) * x0 * step + gain * x_t * variance_s) / (step + gain.square() * variance_s)
        posterior = process.posterior(x_t, x0, s, t)
        return (mean, posterior.mean) if which == "mean" else (std, posterior.std)

    mean, std = (lambda s, t, which=which: moments(s, t, which) for which in ("mean", "std"))
    yield place.sensitive(f"posterior mean = Bayes, {where}", mean, (s, t), TIGHT)
    yield place.sensitive(f"posterior std = Bayes, {where}", std, (s, t), TIGHT, largest=True)


@guarded("float32 laws")
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
    mean, variance = (v.float() for v in process.push((x0, 0.3 + x0.square()), s32, t32))
    exact = torch.stack(process.inverse((mean.double(), variance.double()), s32, t32))
    ours = torch.stack(process.inverse((mean, variance), s32, t32))
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
    process = cast(Gaussian, subject.process)
    points = subject.points[:20]
    for kind in subject.kinds:
        yield from predicted(subject, Place(subject.name, kind_name(kind)), process, points, kind)
    if not process.schedule.shape:
        for s, t in ((0.3, 0.6), (1e-5, 1e-4), (0.9, 1 - 1e-4)):
            yield from _normal_reverse(process, Place(subject.name, "Clean"), points, s, t)


@guarded("prediction, reverse drift")
def predicted(subject: Subject, place: Place, process: Gaussian, points: Tensor, kind) -> Iterator[Row]:
    """What the exact denoiser says, against the gradient of the log-marginal and the reversed generator."""
    oracle = subject.oracle
    named = Score if kind is Energy else kind
    for t in (1e-4, 0.4, 1 - 1e-4):
        x = process.marginal(points, t).draw(NoiseSource(8, len(points)))

        def compared(t, x=x) -> tuple[Tensor, Tensor]:
            leaf = x.clone().requires_grad_()
            score = torch.autograd.grad(oracle.log_marginal(leaf, t).sum(), leaf)[0]
            exact = Score(score, process, x, t).to(named).value
            return exact, oracle.predicting(kind)(x, t).to(named).value

        yield place.sensitive(f"prediction = gradient of the log-marginal, t={t:g}", compared, (t,), TIGHT)
    x = process.marginal(points, 0.4).draw(NoiseSource(8, len(points)))
    backward = cast(Local, process.generator(0.4).reversed(lambda y: oracle.log_marginal(y, 0.4)).local(x))
    drift = oracle.predicting(kind)(x, 0.4).local().drift
    yield place.equal("reverse drift = reversed generator, t=0.4", backward.drift, drift, TIGHT)


@guarded("reverse kernel of Gaussian data")
def _normal_reverse(process: Gaussian, place: Place, points: Tensor, s: float, t: float) -> Iterator[Row]:
    """Gaussian data of the noise's own covariance: the exact reverse kernel is Gaussian, with the optimal variance."""
    single = normal_data(process)
    x_t = process.marginal(points, t).draw(NoiseSource(9, len(points)))

    def step(t) -> Normal:
        prediction = single.native(x_t, t)
        prediction.variance = variances.OptimalVariance(single.clean_variance)  # type: ignore[attr-defined]
        return prediction.step(s)  # type: ignore[return-value]

    def moments(t, which) -> tuple[Tensor, Tensor]:
        """The marginal at s is Gaussian, and precisions add."""
        alpha_s, gain = process.schedule.alpha(s), process.schedule.step_alpha(s, t)
        at_s, across = 0.4 * alpha_s.square() + process.schedule.sigma(s).square(), process.schedule.step_variance(s, t)
        total, law = across + gain.square() * at_s, step(t)
        mean, std = (0.7 * alpha_s * across + gain * x_t * at_s) / total, (at_s * across / total).sqrt()
        return (mean, law.mean) if which == "mean" else (std, law.std)

    mean, std = (lambda t, which=which: moments(t, which) for which in ("mean", "std"))
    yield place.sensitive(f"reverse mean = Bayes, t={t:g}", mean, (t,), TIGHT)
    yield place.sensitive(f"reverse std = Bayes (optimal variance), t={t:g}", std, (t,), TIGHT, largest=True)
    rounded = x_t.float()
    wide, narrow = (single.native(x, t).step(s) for x in (rounded.double(), rounded))
    exact, ours = (torch.cat([v.mean.flatten(), v.std.flatten()]) for v in (wide, narrow))  # type: ignore[attr-defined]
    yield place.equal(f"float32 reverse kernel, t={t:g}", exact, ours, FLOAT32, largest=True)
    if t > 1e-3:  # nearer to 0 the densities themselves are rounded by more than the tolerance
        law = step(t)
        x_s = law.draw(NoiseSource(10, len(points)))
        exact = process.transition(x_s, s, t).log_prob(x_t) + single.log_marginal(x_s, s) - single.log_marginal(x_t, t)
        yield place.equal(f"reverse kernel = Bayes (log density), t={t:g}", exact, law.log_prob(x_s), TIGHT)


def normal_data(process: Gaussian) -> Components:
    """N(0.7, 0.4 C): data whose whitened coordinates are independent, as the noise's are."""
    eye = torch.eye(process.space.dimension, dtype=torch.float64)
    shared = eye if process.covariance is None else process.covariance.apply(eye)
    return normal(process, torch.full(process.space.shape, 0.7, dtype=torch.float64), 0.4 * shared)
