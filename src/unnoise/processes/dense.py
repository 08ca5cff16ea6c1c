"""Processes given by matrices: a kernel Q_{t|s} and rates R_t per coordinate, entry [y, x] from x to y.

A family says `kernel(s, t)` and `rates(t)`; the four primitives of `FiniteProcess`, the prior and which coordinates can
move follow.  Cost: K^2 per coordinate, and the kernel itself once per row.
"""

from abc import abstractmethod

import torch
from torch import Tensor, nn

from unnoise.checks import may_read
from unnoise.generators.local import without_self
from unnoise.kernels.pushed import PushedTables
from unnoise.laws import LOG_ZERO, TINY, Categorical, Law, log_coefficient, log_of, rows_of
from unnoise.processes.finite import CleanLogits, FiniteProcess, float_dtype
from unnoise.processes.lazy_steps import PushedStep, library_s_own
from unnoise.schedules import Schedule
from unnoise.shapes import Clock, Float

LARGEST_INVERSE = 1e12
MOST_STATES = 4096  # of matrices that are formed to draw a step


class DenseProcess(FiniteProcess):
    """Base of processes whose kernels are matrices; all coordinates share them."""

    costly_rate = True
    _kernel_seen = False  # whether what `kernel` answers was looked at
    _kept_prior: tuple[object, Tensor | None] = (None, None)  # the schedule and its log p_1

    def kernel(self, s: Tensor | None, t: Tensor) -> Float[Tensor, "batch size size"]:
        """Q_{t|s} for each pair of times (s = None: from the data), float64, columns sum to 1."""
        raise self.unanswered("kernel(s, t)", "its kernels Q_{t|s}")

    def rates(self, t: Tensor) -> Float[Tensor, "batch size size"]:
        """R_t for each time, float64; the diagonal is not read."""
        raise self.unanswered("rates(t)", "its rates R_t")

    def log_rates(self, t: Tensor) -> Float[Tensor, "batch size size"]:
        return log_of(self.rates(t))

    def factors(self, s: Tensor | None, t: Tensor) -> list[Float[Tensor, "batch size size"]]:
        """Matrices whose product, the last on the left, is the kernel: applied one by one where vectors are few."""
        if not self._kernel_seen and not torch.compiler.is_compiling():
            self._check_kernel(t.device)
        return [self.kernel(s, t)]

    def _check_kernel(self, device: torch.device) -> None:
        """What `kernel` answers at t = 1, looked at once: its shape, its precision, and that its columns are laws."""
        name, size = type(self).__name__, self.state_space.size
        kernel = self.kernel(None, torch.ones(1, dtype=torch.float64, device=device))
        if tuple(kernel.shape) != (1, size, size) or kernel.dtype is not torch.float64:
            raise ValueError(
                f"{name}.kernel(None, t) for one time has shape {tuple(kernel.shape)} and dtype {kernel.dtype}: return "
                f"float64 of shape (1, {size}, {size}), a matrix for each time"
            )
        wrong = ((kernel[0].sum(0) - 1).abs() > 1e-6) | (kernel[0] < -1e-9).any(0)
        if may_read(wrong) and bool(wrong.any()):
            x = int(wrong.nonzero()[0, 0])
            raise ValueError(
                f"{name}.kernel(None, 1): column {x} sums to {kernel[0, :, x].sum().item():g} with a least entry of "
                f"{kernel[0, :, x].min().item():g}, but it is the law of x_1 given x_0 = {x}: entry [y, x] is the "
                f"probability of y, and every column sums to 1"
            )
        self._kernel_seen = True

    def _at(self, x: Tensor, s: Clock | None, t: Clock) -> tuple[Tensor | None, Tensor]:
        """The times of each row; one alone where a single number stands for all rows, as in a sampler."""
        pair = [self.times(t, x)] if s is None else [self.times(s, x, "s"), self.times(t, x)]
        if all(time.stride() == (0,) for time in pair):
            pair = [time[:1] for time in pair]
        return None if s is None else pair[0], pair[-1]

    def log_evidence(self, x_t: Tensor, s: Clock | None, t: Clock) -> Float[Tensor, "batch *shape size"]:
        *earlier, last = self.factors(*self._at(x_t, s, t))
        if not earlier and self.space.dimension > self.state_space.size:
            return rows_of(log_of(last).to(float_dtype(t)), x_t)
        rows = rows_of(last, x_t).reshape(len(x_t), -1, self.state_space.size)
        for factor in reversed(earlier):
            rows = rows @ (factor[0] if len(factor) == 1 else factor)
        return log_of(rows.reshape(*x_t.shape, -1)).to(float_dtype(t))

    def log_push(self, log_v: Tensor, s: Clock | None, t: Clock) -> Float[Tensor, "batch *shape size"]:
        v = log_v.double().exp().flatten(1, -2) if log_v.ndim > 2 else log_v.double().exp().unsqueeze(1)
        for factor in self.factors(*self._at(log_v[..., 0], s, t)):
            v = v @ (factor[0] if len(factor) == 1 else factor).mT
        return log_of(v.reshape(log_v.shape)).to(log_v.dtype)

    def lazy_reverse_step(self, x_t: Tensor, theta: CleanLogits, s: Clock, t: Clock) -> Categorical:
        if self._forms_kernels(x_t, s, t) and library_s_own(self, "reverse_step", "log_push", "log_evidence", "carry_over"):
            return PushedStep(self, x_t, theta, s, t)
        return super().lazy_reverse_step(x_t, theta, s, t)

    def _forms_kernels(self, x_t: Tensor, s: Clock, t: Clock) -> bool:
        """Whether a matrix serves more coordinates than it has columns, so that to form it costs less than to apply it."""
        early, late = self._at(x_t, s, t)
        shared = early is not None and len(early) == len(late) == 1
        return self.state_space.size < min((x_t if shared else x_t[:1]).numel(), MOST_STATES)

    def step_tables(self, x_t: Tensor, s: Clock, t: Clock) -> PushedTables:
        """Q_{s|0} from the categories, and Q_{t|s}: for all rows, or a pair for each."""
        push, evidence = (self._whole(*self._at(x_t, *pair)) for pair in ((None, s), (s, t)))
        groups = max(len(push), len(evidence))
        push, evidence = (matrix.expand(groups, -1, -1) for matrix in (push[..., : self.space.size], evidence))
        return PushedTables(push, evidence)

    def _whole(self, s: Tensor | None, t: Tensor) -> Float[Tensor, "batch size size"]:
        whole, *later = self.factors(s, t)
        for factor in later:
            whole = factor @ whole
        return whole

    def log_rates_into(self, x: Tensor, t: Clock) -> Float[Tensor, "batch *shape size"]:
        return without_self(rows_of(self.log_rates(self.times(t, x)), x).to(float_dtype(t)), x)

    def log_rates_from(self, x: Tensor, t: Clock) -> Float[Tensor, "batch *shape size"]:
        return without_self(rows_of(self.log_rates(self.times(t, x)).mT, x).to(float_dtype(t)), x)

    def inverse(self, q: Tensor, s: Clock, t: Clock) -> Tensor:
        """Q_{t|s}^{-1} q.  The inverse magnifies rounding by its norm, and is refused beyond 1e12: modes that relax faster
        than the slowest are gone long before it is."""
        wide = q.double().reshape(len(q), -1, q.shape[-1])
        return (wide @ invert(self.kernel(*self._at(q[..., 0], s, t))).mT).reshape(q.shape).to(q.dtype)

    def entered(self) -> Tensor:
        """Which states some other state leads to; one that none leads to was there from the start."""
        if not hasattr(self, "_entered"):
            rates = self.log_rates(torch.tensor([0.5], dtype=torch.float64))[0]
            self._entered = (rates.fill_diagonal_(LOG_ZERO) > LOG_ZERO / 2).any(1)
        return self._entered

    def movable(self, x_t: Tensor) -> Tensor:
        return self.entered().to(x_t.device)[x_t]

    def log_prior(self) -> Float[Tensor, "*shape size"]:
        """log p_1, for all coordinates or one each: where a uniformly drawn category has gone by t = 1."""
        schedule = getattr(self, "schedule", None)
        shape = schedule.shape if isinstance(schedule, Schedule) else ()
        device = next((buffer.device for buffer in self.buffers()), None)
        start = torch.zeros(1, *shape, self.state_space.size, dtype=torch.float64, device=device)
        start[..., : self.space.size] = 1 / self.space.size
        return self.log_push(log_of(start), None, torch.ones(1, dtype=torch.float64, device=device))[0]

    def prior(self, rows: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> Law:
        log_p = self._log_prior(device).to(dtype or torch.float64)
        return Categorical(log_p.expand(rows, *self.space.shape, log_p.shape[-1]))

    def _log_prior(self, device: torch.device | str | None) -> Float[Tensor, "*shape size"]:
        """log p_1, computed once; but what learns has another one next time, and its gradient."""
        if next(self.parameters(), None) is not None:
            return self.log_prior().to(device)
        schedule, (own, log_p) = getattr(self, "schedule", None), self._kept_prior
        if log_p is None or own is not schedule:
            log_p = self.log_prior().detach()
        log_p = log_p.to(device)
        if not torch.compiler.is_compiling() and not log_p.is_inference():  # which no gradient could pass later
            self._kept_prior = schedule, log_p  # it stays where it was last asked for
        return log_p

    def extra_repr(self) -> str:
        return f"size={self.space.size}, shape={self.space.shape}"


class TimeScaled(DenseProcess):
    """R_t = -(alpha'/alpha) R for one matrix R; with the clock gamma = -log alpha, Q_{t|s} = exp((gamma_t - gamma_s) R).

    What relaxes at rate 1 under R decays like alpha; with alpha_1 = 0 the process ends in its stationary law.
    """

    schedule: Schedule
    rate_table: "LogRates"  # log R, by rows

    def clock(self, s: Tensor | None, t: Tensor) -> Tensor:
        """gamma_t - gamma_s = -log alpha_{t|s}, exact for short steps; 690, all but infinite, where alpha_t = 0."""
        keep, renew = self.schedule.survival(s, t)
        return torch.where(renew < 0.5, -torch.log1p(-renew.clamp_max(0.5)), -keep.clamp_min(TINY).log())

    def log_speed(self, t: Tensor) -> Tensor:
        """log of -alpha'/alpha."""
        return log_coefficient(-self.schedule.d_alpha(t)) - log_coefficient(self.schedule.alpha(t))

    def rates(self, t: Tensor) -> Float[Tensor, "batch size size"]:
        return self.log_rates(t).exp()

    def log_rates(self, t: Tensor) -> Float[Tensor, "batch size size"]:
        every = torch.arange(self.state_space.size, device=t.device)
        return _plus(self.rate_table.into(every), self.log_speed(t)[:, None, None])

    def _log_rates_at(self, rows: Tensor, x: Tensor, t: Clock) -> Tensor:
        speed = self.log_speed(self.times(t, x))
        speed = speed if self.schedule.shape else speed.reshape(-1, *[1] * (x.ndim - 1))
        return without_self(_plus(rows, speed.unsqueeze(-1)).to(float_dtype(t)), x)

    def log_rates_into(self, x: Tensor, t: Clock) -> Float[Tensor, "batch *shape size"]:
        return self._log_rates_at(self.rate_table.into(x), x, t)

    def log_rates_from(self, x: Tensor, t: Clock) -> Float[Tensor, "batch *shape size"]:
        return self._log_rates_at(self.rate_table.out_of(x), x, t)

    def entered(self) -> Tensor:
        return self.rate_table.entered

    def noiseless(self, t: float) -> bool:
        return bool((self.schedule.beta(t) <= 0).all())


class LogRates(nn.Module):
    """log R off the diagonal, asked for by rows and columns."""

    entered: Tensor  # which states some other leads to

    @abstractmethod
    def into(self, x: Tensor) -> Tensor:
        """log R(x, y) for every y."""

    @abstractmethod
    def out_of(self, x: Tensor) -> Tensor:
        """log R(y, x) for every y."""


class Full(LogRates):
    """A matrix."""

    table: Tensor

    def __init__(self, rates: Float[Tensor, "size size"]):
        super().__init__()
        table = log_of(rates.clamp_min(0)).fill_diagonal_(LOG_ZERO)
        self.register_buffer("table", table, persistent=False)
        self.register_buffer("entered", (table > LOG_ZERO / 2).any(1), persistent=False)

    def into(self, x: Tensor) -> Tensor:
        return self.table.to(x.device)[x]

    def out_of(self, x: Tensor) -> Tensor:
        return self.table.to(x.device).T[x]


class Few(LogRates):
    """The neighbours of each state, in as many slots as the most connected one has: nothing of size K x K."""

    def __init__(self, target: Tensor, source: Tensor, values: Tensor, size: int):
        super().__init__()
        self.size = size
        for name, here, there in (("in", target, source), ("out", source, target)):
            places, logs = _slots(here, there, values, size)
            self.register_buffer(f"{name}_places", places, persistent=False)
            self.register_buffer(f"{name}_logs", logs, persistent=False)
        self.register_buffer("entered", torch.bincount(target, minlength=size) > 0, persistent=False)

    def _spread(self, x: Tensor, places: Tensor, logs: Tensor) -> Tensor:
        rows = torch.full((*x.shape, self.size), LOG_ZERO, dtype=torch.float64, device=x.device)
        return rows.scatter(-1, places.to(x.device)[x], logs.to(x.device)[x])

    def into(self, x: Tensor) -> Tensor:
        return self._spread(x, self.in_places, self.in_logs)  # type: ignore[arg-type]

    def out_of(self, x: Tensor) -> Tensor:
        return self._spread(x, self.out_places, self.out_logs)  # type: ignore[arg-type]


def _slots(here: Tensor, there: Tensor, values: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """For each state the others it is joined to and the logarithms; an empty slot points at the state itself."""
    order = here.argsort(stable=True)
    here, there, values = here[order], there[order], values[order]
    counts = torch.bincount(here, minlength=size)
    slot = torch.arange(len(here)) - (counts.cumsum(0) - counts)[here]
    width = int(counts.max())
    places = torch.arange(size).unsqueeze(1).repeat(1, width)
    logs = torch.full((size, width), LOG_ZERO, dtype=torch.float64)
    places[here, slot], logs[here, slot] = there, values.log()
    return places, logs


def invert(kernel: Float[Tensor, "*batch size size"]) -> Float[Tensor, "*batch size size"]:
    back, singular = torch.linalg.inv_ex(kernel)
    norm = back.abs().sum(-2).amax(-1).nan_to_num(nan=torch.inf)
    if may_read(norm) and (bool(singular.any()) or float(norm.max()) > LARGEST_INVERSE):
        raise ValueError(
            f"the inverse kernel would magnify rounding by {float(norm.max()):.1e}: nothing of x_s is left at t; ask for a "
            f"shorter step"
        )
    return back


def _plus(log_rates: Tensor, log_speed: Tensor) -> Tensor:
    return torch.where(log_rates > LOG_ZERO / 2, log_rates + log_speed, LOG_ZERO)
