"""Any rate matrix with a time scale: R_t = -(alpha'/alpha) R,  Q_{t|s} = exp(gamma R),  gamma = log(alpha_s/alpha_t).

R(y, x) is the rate x -> y (row = destination); `unnoise.rate_matrices` builds the usual ones: nearest neighbours,
discretised Gaussian, bands, embedding neighbours, birth and death.  Kernels are never formed where an action on vectors
will do (`generators.semigroup`): a row costs O(K^2 log(rate x clock)), whatever the stiffness, and no entry is negative.
"""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.autograd.forward_ad import unpack_dual
from torch.utils.weak import WeakTensorKeyDictionary

from unnoise.checks import may_read, ordered
from unnoise.generators.semigroup import Eigen, PowerTable, Semigroup, Series, checked_entries, checked_rates
from unnoise.laws import Categorical, TabulatedCategorical, log_of
from unnoise.processes.base import valid_schedule
from unnoise.processes.dense import Few, Full, TimeScaled, invert
from unnoise.processes.finite import float_dtype
from unnoise.processes.rank_one import check_fit
from unnoise.schedules import Linear, Schedule
from unnoise.shapes import Clock, Float, Tree
from unnoise.spaces import Finite

Method = Literal["uniformization", "eigen"]


class _Kept:
    """A kernel, and what shows later whether it is still the right one."""

    def __init__(self, schedule: Schedule, t: Tensor, kernel: Tensor):
        self.schedule, self.kernel, self.recorded = schedule, kernel, _recording(t)
        self.versions = t._version, kernel._version
        self.times = t.clone() if may_read(t) else None

    def holds(self, schedule: Schedule, t: Tensor) -> bool:
        """Whether schedule and times are as they were, and nobody has written into the kernel."""
        return (
            self.schedule is schedule
            and self.versions == (t._version, self.kernel._version)
            and (self.times is None or torch.equal(self.times, t))  # an array that shares its memory has no version
            and self.recorded == _recording(t)  # every replay is to make its own
        )


def _recording(t: Tensor) -> bool:
    return t.is_cuda and torch.cuda.is_current_stream_capturing()


def _differentiated(t: Tensor) -> bool:
    """Whether derivatives in t may be taken: by `backward`, with a tangent, or inside of `torch.func`."""
    return t.requires_grad or is_functorch_wrapped_tensor(t) or unpack_dual(t).tangent is not None


class RateMatrix(TimeScaled):
    """`RateMatrix(rates.nearest_neighbour(256), shape=(28, 28))`.

    `rates` is dense or sparse.  `size` below the matrix's own adds the remaining states as noise states, such as MASK.
    `prior` defaults to the law of x_1 from a uniform x_0: the stationary law if alpha_1 = 0 and there is one.
    """

    def __init__(
        self,
        rates: Tensor,
        shape: int | Sequence[int] = (),
        schedule: Schedule | None = None,
        *,
        size: int | None = None,
        prior: Tensor | None = None,
        method: str = "uniformization",
    ):
        super().__init__()
        rates = torch.as_tensor(rates)
        sparse = rates.layout != torch.strided
        matrix = None if sparse else checked_rates(rates)
        states = len(rates)
        size = states if size is None else size
        if not 0 < size <= states:
            raise ValueError(f"size = {size} categories, but the rate matrix has {states} states")
        self.space = Finite(size, shape)
        self.state_space = Finite(states, shape)
        self.schedule = check_fit(valid_schedule(schedule, Linear()), self.space)
        if method not in get_args(Method):
            raise ValueError(f"method = {method!r}: choose 'uniformization' or 'eigen'")
        one = torch.ones(1, dtype=torch.float64)
        with torch.no_grad():
            longest = float(self.clock(None, one).max())
        self.semigroup: Semigroup
        if matrix is None:
            self.semigroup, self.rate_table = Series(rates, longest), Few(*checked_entries(rates), states)
        else:
            self.semigroup = Eigen(matrix) if method == "eigen" else PowerTable(matrix, longest)
            self.rate_table = Full(matrix)
        self._given_prior = None if prior is None else self._checked_prior(prior)
        self.cutoff = 0.0
        # the kernel from the data asked for last, by its t: whoever draws x_t asks next what each x_0 has to say of it
        self._last: WeakTensorKeyDictionary | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None}  # copies and files go without it

    def _checked_prior(self, prior: Tensor) -> Tensor:
        prior = torch.as_tensor(prior).double()
        states = self.state_space.size
        if tuple(prior.shape) != (states,) or not bool((prior >= 0).all()) or abs(float(prior.sum()) - 1) > 1e-6:
            raise ValueError(f"the prior must be a law on the {states} states: pass {states} probabilities that sum to 1")
        return log_of(prior / prior.sum())

    def log_prior(self) -> Float[Tensor, "*shape size"]:
        return super().log_prior() if self._given_prior is None else self._given_prior

    def _clock(self, like: Tensor, s: Clock | None, t: Clock) -> Tensor:
        g = self.clock(None if s is None else self.times(s, like, "s"), self.times(t, like))
        return g if self.schedule.shape else g.reshape(-1, *[1] * (like.ndim - 1))

    def kernel(self, s: Tensor | None, t: Tensor) -> Float[Tensor, "batch size size"]:
        if self.schedule.shape:
            raise ValueError("coordinates with schedules of their own have no kernel in common")
        if s is not None or not self._keeps(t):
            return self._kernel(s, t)
        last = self._last  # read once: other threads may replace it
        kept = None if last is None else last.get(t)
        if kept is None or not kept.holds(self.schedule, t):
            kept = _Kept(self.schedule, t, self._kernel(s, t))
            self._last = WeakTensorKeyDictionary({t: kept})  # gone when t is
        return kept.kernel

    def _kernel(self, s: Tensor | None, t: Tensor) -> Float[Tensor, "batch size size"]:
        return self.semigroup.matrix(self.clock(s, t))

    def _keeps(self, t: Tensor) -> bool:
        """Whether a kernel serves again: not one that gradients pass through, backward or forward, nor that of a schedule
        that learns, which is another next time.  Inference tensors do not tell whether they were written into."""
        learns = next(self.parameters(), None) is not None or any(buffer.requires_grad for buffer in self.buffers())
        inference = t.is_inference() or torch.is_inference_mode_enabled()
        return not (learns or inference or torch.compiler.is_compiling() or _differentiated(t))

    def marginal(self, x0: Tree, t: Clock) -> Categorical:
        if not self._shares_kernel():
            return super().marginal(x0, t)
        x0 = self.state_space.check(x0, "x0")
        return TabulatedCategorical(self.kernel(*self._at(x0, None, t)).mT, x0, float_dtype(t))

    def transition(self, x_s: Tree, s: Clock, t: Clock) -> Categorical:
        if not self._shares_kernel():
            return super().transition(x_s, s, t)
        x_s = self.state_space.check(x_s, "x_s")
        ordered(self.times(s, x_s, "s"), self.times(t, x_s))
        return TabulatedCategorical(self.kernel(*self._at(x_s, s, t)).mT, x_s, float_dtype(t))

    def _shares_kernel(self) -> bool:
        """With more coordinates than states it is cheaper to form the kernel of a row once."""
        return not self.schedule.shape and self.space.dimension > self.state_space.size

    def _forms_kernels(self, x_t: Tensor, s: Clock, t: Clock) -> bool:
        return not self.schedule.shape and super()._forms_kernels(x_t, s, t)

    def log_evidence(self, x_t: Tensor, s: Clock | None, t: Clock) -> Float[Tensor, "batch *shape size"]:
        if self._shares_kernel():
            return super().log_evidence(x_t, s, t)
        one_hot = torch.nn.functional.one_hot(x_t, self.state_space.size).double()
        return log_of(self.semigroup.apply_to(one_hot, self._clock(x_t, s, t), transposed=True)).to(float_dtype(t))

    def log_push(self, log_v: Tensor, s: Clock | None, t: Clock) -> Float[Tensor, "batch *shape size"]:
        if self._shares_kernel():
            return super().log_push(log_v, s, t)
        clock = self._clock(log_v[..., 0], s, t)
        if log_v.ndim == 1:
            raise ValueError("log_push takes a batch of vectors")
        return log_of(self.semigroup.apply_to(log_v.double().exp(), clock)).to(log_v.dtype)

    def inverse(self, q: Tensor, s: Clock, t: Clock) -> Tensor:
        if not self.schedule.shape:
            return super().inverse(q, s, t)
        kernels = self.semigroup.matrix(self._clock(q[..., 0], s, t))
        return (invert(kernels) @ q.double().unsqueeze(-1)).squeeze(-1).to(q.dtype)
