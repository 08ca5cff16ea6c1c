"""A schedule of one's own: its identities, near both ends too, and then every family that takes it.

    beta = 1 - alpha,   d_alpha, d_sigma and g^2 = alpha^2 d(sigma^2/alpha^2)/dt by autograd,   time_of_beta(beta(t)) = t,
    alpha_{t|r} = alpha_{t|s} alpha_{s|r},   sigma^2_{t|r} = alpha_{t|s}^2 sigma^2_{s|r} + sigma^2_{t|s},

the last two sums of positive numbers, which no rounding spoils.  An inverse is right if the time is, or the value at the
time found is: where a function is flat the one says nothing, where it is steep the other.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from unnoise.processes import Gaussian, Masking, Thinning, Uniform
from unnoise.schedules import Schedule
from unnoise.verify.bounds import fast_path_checks, identity_checks
from unnoise.verify.guard import guarded, refusal
from unnoise.verify.kernels import kernel_checks
from unnoise.verify.law_matrices import FLOAT32, TIGHT, TRIPLES
from unnoise.verify.load import load
from unnoise.verify.rows import Place, Row
from unnoise.verify.run import checks
from unnoise.verify.subjects import Subject, count_subject, finite_subject, gaussian_subject

SLOPE, INVERSE = 1e-8, 1e-9  # of derivatives and of times that were solved for
MIDDLE = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
ENDS = (1e-5, 1e-4, 1 - 1e-4, 1 - 1e-5)


def schedule_rows(path: str, thorough: bool = False) -> Iterator[Row]:
    """The rows of `--schedule package.module:name`."""
    schedule = load(path, "schedule", Schedule)
    yield from schedule_checks(schedule, Place(path))
    for family, make in FAMILIES.items():
        place = Place(f"{family}/{path}")
        try:
            subject = make(schedule, place.process)
        except Exception as error:  # a family may refuse a schedule: categories need alpha_1 near 0
            yield refusal(place, "the process under this schedule", error)
            continue
        if not thorough:  # chains, estimators and wrong networks see of a schedule what these see
            subject.checks = (kernel_checks, identity_checks, fast_path_checks)
        yield from checks(subject, thorough)


def _few(subject: Subject, count: int = 1) -> Subject:
    """The first kinds: what a schedule enters, it enters alike in all."""
    subject.kinds, subject.grid_kind = subject.kinds[:count], None
    return subject


def _shape(schedule: Schedule, usual: tuple[int, ...]) -> tuple[int, ...]:
    return schedule.shape or usual


FAMILIES: dict[str, Callable[[Schedule, str], Subject]] = {
    "Gaussian": lambda schedule, name: _few(gaussian_subject(Gaussian(_shape(schedule, (1,)), schedule), name), 2),
    "Masking": lambda schedule, name: _few(finite_subject(Masking(3, _shape(schedule, (2,)), schedule), name)),
    "Uniform": lambda schedule, name: _few(finite_subject(Uniform(3, _shape(schedule, (2,)), schedule), name)),
    "Thinning": lambda schedule, name: _few(count_subject(Thinning(_shape(schedule, (1,)), schedule), name)),
}


def schedule_checks(schedule: Schedule, place: Place) -> Iterator[Row]:
    yield from _valid(schedule, place)
    middle = torch.tensor(MIDDLE, dtype=torch.float64)
    for name, own, made in (
        ("d_alpha", schedule.d_alpha, schedule.exact_alpha),
        ("d_sigma", schedule.d_sigma, schedule.exact_sigma),
        ("d_log_snr", schedule.d_log_snr, schedule.exact_log_snr),
    ):
        yield from _slopes(schedule, place, name, own, made, middle)
    yield from _diffusion(schedule, place, middle)
    yield from _inverses(schedule, place, middle)
    for times in TRIPLES:
        yield from _steps(schedule, place, times)
    yield from _float32(schedule, place)


@guarded("alpha, sigma and beta over [0, 1]")
def _valid(schedule: Schedule, place: Place) -> Iterator[Row]:
    schedule.validate()
    t = torch.tensor([0.0, *ENDS[:2], *MIDDLE, *ENDS[2:], 1.0], dtype=torch.float64)
    alpha, beta = schedule.alpha(t), schedule.beta(t)
    yield place.equal("beta = 1 - alpha, everywhere", 1 - alpha, beta, 1e-14)
    falls = torch.diff(alpha, dim=0).clamp_min(0).max()
    yield place.at_most("alpha does not rise", 0.0, falls, 1e-14)
    ratio = schedule.log_snr(t[1:-1])
    exact = 2 * (schedule.alpha(t[1:-1]).log() - schedule.sigma(t[1:-1]).log())
    seen = exact.isfinite()
    yield place.equal("log_snr = 2 log(alpha/sigma)", exact[seen], ratio[seen], 1e-9)


def by_autograd(function: Callable[[Tensor], Tensor], t: Tensor) -> Tensor | None:
    """d function/dt for each row; None where the function does not say.  A schedule per coordinate: entry by entry."""
    with torch.enable_grad():
        leaf = t.detach().clone().requires_grad_()
        value = function(leaf)
        if not value.requires_grad:
            return None
        columns = value.reshape(len(t), -1).unbind(1)
        slopes = [torch.autograd.grad(column.sum(), leaf, retain_graph=True)[0] for column in columns]
        return torch.stack(slopes, 1).reshape(value.shape)


def by_differences(function: Callable[[Tensor], Tensor], t: Tensor, h: float = 1e-3) -> Tensor:
    """The same by central differences of the fourth order."""
    near, far = (function(t + k * h) - function(t - k * h) for k in (1, 2))
    return ((8 * near - far) / (12 * h)).detach()


def _slopes(schedule: Schedule, place: Place, name: str, own, made, t: Tensor) -> Iterator[Row]:
    inside = t[1:-1]  # differences reach to both sides
    yield from _slope(place, f"{name} = differences, inside", own(inside), by_differences(made, inside), 1e-6)
    yield from _slope(place, f"{name} = autograd, inside", own(t), by_autograd(made, t), SLOPE)
    for end in ENDS:
        yield from _slope_at(place, f"{name} = autograd, t={_at(end)}", own, made, end)


@guarded("derivatives")
def _slope(place: Place, quantity: str, ours: Tensor, exact: Tensor | None, tolerance: float) -> Iterator[Row]:
    if exact is not None:  # else the schedule's own derivative is a constant, or by other means than autograd
        yield place.equal(quantity, exact, ours, tolerance)


@guarded("derivatives near the ends")
def _slope_at(place: Place, quantity: str, own, made, t: float) -> Iterator[Row]:
    def compared(t: float) -> tuple[Tensor, Tensor]:
        clock = torch.tensor([t], dtype=torch.float64)
        exact, ours = by_autograd(made, clock), own(clock)
        return (ours if exact is None else exact), ours

    exact, _ = compared(t)
    if bool(exact.isfinite().all()):  # a slope that is infinite at the end itself is none of a step's
        yield place.sensitive(quantity, compared, (t,), SLOPE)


@guarded("g^2 = alpha^2 d(sigma^2/alpha^2)/dt")
def _diffusion(schedule: Schedule, place: Place, t: Tensor) -> Iterator[Row]:
    def ratio(t: Tensor) -> Tensor:
        return (schedule.exact_sigma(t) / schedule.exact_alpha(t)).square()

    slope = by_autograd(ratio, t)
    if slope is not None:
        exact = schedule.alpha(t).square() * slope
        yield place.equal("diffusion = alpha^2 d(sigma^2/alpha^2)/dt", exact, schedule.diffusion(t), SLOPE)
    yield place.equal("drift = d_alpha/alpha", schedule.d_alpha(t) / schedule.alpha(t), schedule.drift(t), 1e-12)
    yield place.at_most("-diffusion <= 0", 0.0, -schedule.diffusion(t))


@guarded("inverses")
def _inverses(schedule: Schedule, place: Place, t: Tensor) -> Iterator[Row]:
    t = torch.cat([torch.tensor(ENDS[:2], dtype=torch.float64), t, torch.tensor(ENDS[2:], dtype=torch.float64)])
    if schedule.shape:
        yield place.unchecked("times of a value", "a schedule per coordinate has a time for each of them")
        return
    for name, value_of, time_of in (
        ("time_of_log_snr", schedule.log_snr, schedule.time_of_log_snr),
        ("time_of_beta", schedule.beta, schedule.time_of_beta),
    ):
        value = value_of(t)
        if name == "time_of_beta" and bool((value == 0).all()):
            yield place.unchecked(name, "alpha = 1 throughout: no time belongs to a value of alpha")
            continue
        found = time_of(value)
        gaps = (found - t).abs(), (value_of(found) - value).abs() / value.abs().clamp_min(1)
        gap = torch.minimum(*gaps).nan_to_num(nan=torch.inf)
        i = int(gap.argmax())
        yield place.row(f"{name} of its own value", t[i], found[i], gap[i], INVERSE)


def _at(t: float) -> str:
    return f"1-{1 - t:.0e}" if t > 0.999 else f"{t:g}" if t > 1e-3 else f"{t:.0e}"


@guarded("steps")
def _steps(schedule: Schedule, place: Place, times: tuple[float, float, float]) -> Iterator[Row]:
    where = f"t={_at(times[-1])}"
    gain, fresh = schedule.step_alpha, schedule.step_variance

    def whole(s, t) -> Tensor:
        return (gain(s, t).square() * schedule.sigma(s).square() + fresh(s, t)) / schedule.sigma(t).square()

    for quantity, compared in (
        ("alpha_{t|s} alpha_s = alpha_t", lambda r, s, t: (schedule.alpha(t), gain(s, t) * schedule.alpha(s))),
        ("alpha_{t|r} = alpha_{t|s} alpha_{s|r}", lambda r, s, t: (gain(r, t), gain(s, t) * gain(r, s))),
        ("step_beta = 1 - alpha_{t|s}", lambda r, s, t: (1 - gain(s, t), schedule.step_beta(s, t))),
        (
            "sigma^2_{t|r} = alpha_{t|s}^2 sigma^2_{s|r} + sigma^2_{t|s}",
            lambda r, s, t: (torch.ones_like(fresh(r, t)), (gain(s, t).square() * fresh(r, s) + fresh(s, t)) / fresh(r, t)),
        ),
        ("sigma^2_t = alpha_{t|s}^2 sigma^2_s + sigma^2_{t|s}", lambda r, s, t: (torch.ones_like(fresh(s, t)), whole(s, t))),
    ):
        yield place.sensitive(f"{quantity}, {where}", compared, times, TIGHT)


@guarded("float32 times")
def _float32(schedule: Schedule, place: Place) -> Iterator[Row]:
    """A float32 time is a number like any other: its answer is the float64 one, rounded."""
    t = torch.tensor([*ENDS[:2], *MIDDLE, *ENDS[2:]], dtype=torch.float32)
    for name in ("alpha", "sigma", "beta"):
        of = {"alpha": schedule.alpha, "sigma": schedule.sigma, "beta": schedule.beta}[name]
        yield place.equal(f"float32 {name} / float64 {name}", 1.0, _ratio(of(t).double(), of(t.double())), FLOAT32)
    s, t = 0.9 * t, t
    for name, step in (("step_alpha", schedule.step_alpha), ("step_variance", schedule.step_variance)):
        exact, ours = step(s.double(), t.double()), step(s, t).double()
        yield place.equal(f"float32 {name} / float64 {name}", 1.0, _ratio(ours, exact), FLOAT32)


def _ratio(ours: Tensor, exact: Tensor) -> Tensor:
    """1 where both are 0 (or below what float32 holds)."""
    return torch.where((exact.abs() < 1e-37) & (ours.abs() < 1e-37), 1.0, ours / exact)
