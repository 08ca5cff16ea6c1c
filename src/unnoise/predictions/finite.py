"""Predictions on finite spaces, all in logarithms.

    Posterior      leave-one-out: log q(x_0^k = a | the *other* coordinates of x_t), `size` logits per coordinate
    RawPosterior   log q(x_0^k = a | all of x_t); its reverse is `marginalised` (eq:reversal-austin-nn, exact) or
                   `plug-in` (eq:reversal-x0-cond-disc, exact only for masking or one-hot predictions)
    Ratio          log q_t(y)/q_t(x_t) for y that differs from x_t in one coordinate: the concrete score
    Rates          log reverse rates x_t -> y, restricted to where the forward process goes y -> x_t
    Transition     log p(x_s = y | x_t) for the grid pair (s, t)

Networks predict a coordinate from the others; the library adds the evidence log q(x_t^k | a).  Then the marginalised and
the plug-in kernel coincide, the posterior is consistent at every noise level, and the bound stays finite for imperfect
networks (a raw posterior must approach a one-hot vector as fast as the noise vanishes).  For masking the evidence is
constant and nothing changes.

A `Posterior` is lazy: it holds ready logits, or features and a head that is applied to the rows one asks for.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor

from unnoise.checks import as_times, may_read
from unnoise.generators import Local
from unnoise.generators.local import without_self
from unnoise.laws import LOG_ZERO, Categorical, Law, draw_categories, log_of
from unnoise.noise import NoiseSource
from unnoise.predictions.base import Kind, OutputReading, Prediction, check_output, refuse
from unnoise.predictions.ratio_steps import spread_over_data, step_of_ratios
from unnoise.processes import FiniteProcess, Process
from unnoise.processes.finite import at
from unnoise.shapes import Bool, Clock, Float, Int

Kernel = Literal["marginalised", "plug-in"]


def check_kernel(kernel: str) -> Kernel:
    if kernel not in get_args(Kernel):
        raise ValueError(f"kernel = {kernel!r}: choose 'marginalised' or 'plug-in'")
    return cast(Kernel, kernel)


class FinitePrediction(Prediction):
    """A row of logarithms per coordinate."""

    process: FiniteProcess
    x_t: Tensor
    t: Tensor
    needs_generator = True  # whether it speaks of rates, which a chain by matrices does not have

    @classmethod
    def misfit(cls, process: Process) -> str | None:
        if not isinstance(process, FiniteProcess):
            return super().misfit(process)
        if cls.needs_generator and not process.has_generator:
            return "speaks of rates, but a chain by matrices has no generator"
        return None

    @classmethod
    def sizes(cls, process: FiniteProcess) -> list[int]:
        """How many numbers per coordinate a network may return: categories, or with the states that noise adds."""
        return [process.space.size, process.state_space.size]

    @classmethod
    def shapes(cls, process: Process, x_t: Tensor) -> list[tuple[int, ...]]:
        return [(*x_t.shape, size) for size in cls.sizes(cast(FiniteProcess, process))]

    @classmethod
    def of_output(cls, output: Any, process: Process, x_t: Tensor, t: Tensor, reading: OutputReading) -> "FinitePrediction":
        check_output(output, cls.shapes(process, x_t))
        return cls(output, process, x_t, t, **cls.options(reading, t))  # type: ignore[arg-type]

    @classmethod
    def options(cls, reading: OutputReading, t: Tensor) -> dict[str, Any]:
        """What else it is made of."""
        return reading.grid_pair(cls, t)

    @classmethod
    def cutoff(cls, process: Process) -> float:
        """Only leave-one-out logits keep the bound finite as the noise vanishes, and anything does where a coordinate is
        its own value or MASK."""
        return process.cutoff if process.absorbing else max(process.cutoff, 1e-4)

    def __init__(self, value: Tensor, process: FiniteProcess, x_t: Int[Tensor, "batch *shape"], t: Clock):
        self.value = value if value.dtype in (torch.float32, torch.float64) else value.float()
        self.process, self.x_t = process, x_t
        self.t = as_times(t, x_t.shape[0], x_t.device)

    def with_value(self, value: Tensor) -> Any:
        return super().with_value(value if value.dtype in (torch.float32, torch.float64) else value.float())

    def clean_law(self) -> Categorical:
        """The model's law of x_0 given x_t, coordinate by coordinate: how the bound and a likelihood end, and what a sampler
        draws for a coordinate that is left without a value."""
        if not self.process.noiseless(0.0):  # the kernel to time 0 ends before the data
            return self.to(RawPosterior).clean_law()
        return spread_over_data(self, cast(Categorical, self.step(0.0)))

    @abstractmethod
    def log_ratio(self) -> Tensor:
        """log q(y)/q(x_t) for every y, meaningful where the forward process goes y -> x_t."""

    def local(self) -> Local:
        return self.process.reverse_local_from_ratio(self.x_t, self.log_ratio(), self.t)

    def _moves(self) -> Tensor:
        return self.process.log_rates_into(self.x_t, self.t) > LOG_ZERO / 2

    def to(self, kind: type[Kind], **options) -> Kind:
        if kind is type(self) and not options:
            return self  # type: ignore[return-value]
        if not issubclass(kind, FinitePrediction):
            raise refuse(self, kind, "one lives on categories, the other on numbers")
        return kind.converted(self, **options)  # type: ignore[return-value]

    @classmethod
    @abstractmethod
    def converted(cls, other: "FinitePrediction", **options) -> "FinitePrediction": ...


class _CleanLaw(FinitePrediction):
    """A reverse process built from a law theta of x_0: rates R_t(x_t, y) m(y)/m(x_t) with m = Q_t theta."""

    needs_generator = False

    @classmethod
    def sizes(cls, process: FiniteProcess) -> list[int]:
        return [process.space.size]

    @classmethod
    def tells_clean(cls, process: Process) -> bool:
        return True

    @abstractmethod
    def log_theta(self) -> Float[Tensor, "batch *shape size"]:
        """The vector that takes the place of the one-hot x_0 in the conditioned reverse."""

    def log_ratio(self) -> Tensor:
        log_m = self.process.log_push(self.process.widen(self.log_theta()), None, self.t)
        return log_m - at(log_m, self.x_t)

    def step(self, s: Clock) -> Law:
        return self.process.reverse_step(self.x_t, self.log_theta(), s, self.t)

    def clean_law(self) -> Categorical:
        """theta with the evidence of x_t."""
        evidence = self.process.log_evidence(self.x_t, None, self.t)[..., : self.process.space.size]
        return Categorical.normalised(self.log_theta() + evidence)

    def _log_softmax(self, logits: Tensor, rows: Tensor | None = None) -> Tensor:
        """Normalised over the categories of each coordinate."""
        valid = self.process.space.valid(logits.device)
        if valid is not None:
            valid = valid if rows is None else valid.expand(*self.x_t.shape, valid.shape[-1])[rows]
            logits = torch.where(valid, logits, LOG_ZERO)
        return logits.log_softmax(-1)


class Posterior(_CleanLaw):
    """Leave-one-out logits, ready or as features with a head."""

    lazy = True

    @classmethod
    def cutoff(cls, process: Process) -> float:
        return process.cutoff

    @classmethod
    def of_features(
        cls, features: Tensor, head: Callable[[Tensor], Tensor], process: FiniteProcess, x_t: Tensor, t: Clock
    ) -> "Posterior":
        """Logits that are made where they are asked for."""
        return cls(features, process, x_t, t, head=head)

    def clean(self) -> Tensor:
        return self.logits.softmax(-1)

    def __init__(
        self,
        value: Tensor,
        process: FiniteProcess,
        x_t: Int[Tensor, "batch *shape"],
        t: Clock,
        head: Callable[[Tensor], Tensor] | None = None,
    ):
        self.head, self.features = head, value
        if head is None:
            super().__init__(value, process, x_t, t)
        else:
            self.process, self.x_t, self.t = process, x_t, as_times(t, x_t.shape[0], x_t.device)

    def with_value(self, value: Tensor) -> Any:
        """Ready logits, whatever it was made of."""
        own = super().with_value(value)
        own.head = None
        return own

    def _logits(self, rows: Bool[Tensor, "batch *shape"] | None = None) -> Tensor:
        features = self.features if rows is None else self.features[rows]
        return self._checked(features if self.head is None else self.head(features))

    def _checked(self, logits: Tensor) -> Tensor:
        logits = self._of_size(logits)
        return logits if logits.dtype in (torch.float32, torch.float64) else logits.float()

    def _of_size(self, logits: Tensor) -> Tensor:
        if logits.shape[-1] != self.process.space.size:
            raise ValueError(
                f"the head returned {logits.shape[-1]} logits per coordinate; expected {self.process.space.size}, "
                f"one per category (MASK is none)"
            )
        return logits

    def logits_at(self, index: Int[Tensor, "chosen"] | slice) -> Float[Tensor, "chosen size"]:
        """The logits of some coordinates, by their position in the flattened [batch, *shape]: the head sees no others."""
        logits = self.output_at(index)
        return logits if logits.dtype in (torch.float32, torch.float64) else logits.float()

    def output_at(self, index: Int[Tensor, "chosen"] | slice) -> Float[Tensor, "chosen size"]:
        """The same in the precision in which the network returns them."""
        features = self.features.flatten(0, self.x_t.ndim - 1)[index]
        logits = self._of_size(features if self.head is None else self.head(features))
        valid = self.process.space.valid(logits.device)
        if valid is None:
            return logits
        if isinstance(index, slice):
            index = torch.arange(self.x_t.numel(), device=logits.device)[index]
        own = valid.reshape(-1, valid.shape[-1])[index % self.process.space.dimension]
        return torch.where(own, logits, torch.finfo(logits.dtype).min if logits.dtype is torch.float16 else LOG_ZERO)

    @property
    def logits_dtype(self) -> torch.dtype:
        """Of the logits as they are used: float32 at least (a head is taken to keep its features' precision)."""
        return torch.promote_types(self.features.dtype, torch.float32)

    @property
    def logits(self) -> Float[Tensor, "batch *shape size"]:
        return self._logits()

    @property
    def value(self) -> Tensor:
        return self._logits()

    @value.setter
    def value(self, value: Tensor) -> None:
        self.features = value

    def log_theta(self) -> Float[Tensor, "batch *shape size"]:
        return self.process.carry_over(self.x_t, self._log_softmax(self._logits()))

    def step(self, s: Clock) -> Law:
        return self.process.lazy_reverse_step(self.x_t, self, s, self.t)

    def log_prob_given_all(self, x0: Int[Tensor, "batch *shape"]) -> Float[Tensor, "batch *shape"]:
        """log q(x_0^k | all of x_t) in one pass over the logits and the evidence."""
        logits = self._logits()
        evidence = self.process.log_evidence(self.x_t, None, self.t)[..., : self.process.space.size].to(logits.dtype)
        return at(self._log_softmax(logits + evidence), x0).squeeze(-1)

    def log_prob(self, x0: Int[Tensor, "batch *shape"], rows: Bool[Tensor, "batch *shape"] | None = None) -> Tensor:
        """log theta(x_0^k) in one pass over the logits: of all coordinates, or in a list of those chosen only."""
        logits = self._logits(rows)
        valid = self.process.space.valid(logits.device)
        if valid is not None:
            valid = valid.expand(*self.x_t.shape, valid.shape[-1])
            logits = torch.where(valid if rows is None else valid[rows], logits, LOG_ZERO)
        if rows is not None:
            return -torch.nn.functional.cross_entropy(logits, x0[rows], reduction="none")
        flat = torch.nn.functional.cross_entropy(logits.flatten(0, -2), x0.flatten(), reduction="none")
        return -flat.reshape(x0.shape)

    def clean_law(self) -> Categorical:
        return self.to(RawPosterior).clean_law()

    def draw(self, noise: NoiseSource) -> Int[Tensor, "batch *shape"]:
        """x_0 given all of x_t."""
        return self.to(RawPosterior).draw(noise)

    @classmethod
    def converted(cls, other: FinitePrediction, **options) -> "Posterior":
        process, x_t = other.process, other.x_t
        if isinstance(other, RawPosterior):
            return cls(other.without_evidence(), process, x_t, other.t)
        if isinstance(other, Transition):
            raise refuse(other, cls, "a general kernel of one grid pair is not the kernel of any posterior")
        # m(y)/m(x_t) = ratio, and theta is proportional to Q_t^-1 m
        moves, movable = other._moves(), process.movable(x_t).unsqueeze(-1)
        if may_read(moves):
            sizes = torch.as_tensor(process.space.size if process.space.sizes is None else process.space.sizes)
            needed = sizes + (process.state_space.size - process.space.size) - 1
            if bool((movable.squeeze(-1) & (moves.sum(-1) < needed)).any()):
                raise refuse(other, cls, "not every state leads to x_t, so some ratios are not known")
        ratio = torch.where(moves, other.log_ratio(), LOG_ZERO).scatter(-1, x_t.unsqueeze(-1), 0.0)
        size, scale = process.space.size, process.log_ratio_scale(x_t, other.t)
        if scale is None:
            m = ratio.exp()
            theta = process.inverse(m / m.sum(-1, keepdim=True), None, other.t)  # type: ignore[arg-type]  # None: from 0
        else:  # what is left of a ratio is the law itself, also where alpha = 0
            bare = (ratio - scale.to(ratio.dtype)).scatter(-1, x_t.unsqueeze(-1), LOG_ZERO)
            theta = torch.where(movable, bare, ratio).exp()
            theta = torch.cat([theta[..., :size], 1 - theta[..., :size].sum(-1, keepdim=True)], -1)
        if may_read(theta):
            wrong = movable & ((theta < -1e-6) | (theta[..., size:].abs().sum(-1, keepdim=True) > 1e-6))
            if bool(wrong.any()):
                why = "these values belong to no law of x_0 (its probabilities would be negative); predict a Posterior"
                raise refuse(other, cls, why)
        return cls(process.carry_over(x_t, log_of(theta[..., :size].clamp_min(0))), process, x_t, other.t)


class RawPosterior(_CleanLaw):
    """Logits of q(x_0^k | x_t), all of x_t included."""

    @classmethod
    def options(cls, reading: OutputReading, t: Tensor) -> dict[str, Any]:
        return {"kernel": reading.kernel}

    def clean(self) -> Tensor:
        return self.log_probs().exp()

    def __init__(self, value: Tensor, process: FiniteProcess, x_t: Tensor, t: Clock, kernel: str = "marginalised"):
        super().__init__(value, process, x_t, t)
        self.kernel = check_kernel(kernel)

    def log_probs(self) -> Float[Tensor, "batch *shape size"]:
        return self.process.carry_over(self.x_t, self._log_softmax(self.value))

    def without_evidence(self) -> Tensor:
        """theta(a) / q(x_t^k | a); terms with no evidence are dropped.  So ratios are those of eq:discrete-tweedie."""
        evidence = self.process.log_evidence(self.x_t, None, self.t)[..., : self.process.space.size]
        theta = self.log_probs()
        bare = torch.where(evidence > LOG_ZERO / 2, theta - evidence, LOG_ZERO)
        return self.process.carry_over(self.x_t, bare.log_softmax(-1))

    def log_theta(self) -> Float[Tensor, "batch *shape size"]:
        return self.log_probs() if self.kernel == "plug-in" else self.without_evidence()

    def clean_law(self) -> Categorical:
        """Its own law; with the plug-in kernel, which takes it for a leave-one-out one, that with the evidence once more."""
        return super().clean_law() if self.kernel == "plug-in" else Categorical(self.log_probs())

    def draw(self, noise: NoiseSource) -> Int[Tensor, "batch *shape"]:
        return draw_categories(self.log_probs(), noise)

    @classmethod
    def converted(cls, other: FinitePrediction, **options) -> "RawPosterior":
        loo = other.to(Posterior)
        evidence = other.process.log_evidence(other.x_t, None, other.t)[..., : other.process.space.size]
        return cls((loo.log_theta() + evidence).log_softmax(-1), other.process, other.x_t, other.t, **options)


class Ratio(FinitePrediction):
    """log q(y)/q(x_t); the entry of x_t itself is not read.

    A network's output is what its process does not know already (`log_ratio_scale`): under masking log alpha/(1 - alpha) is
    added, and the network speaks of probabilities alone, which do not change their size with time.
    """

    @classmethod
    def of_output(cls, output, process, x_t, t, reading):
        own = super().of_output(output, process, x_t, t, reading)
        scale = process.log_ratio_scale(x_t, own.t)
        return own if scale is None else own.with_value(own.value + scale.to(own.value.dtype))

    @classmethod
    def of_energy(cls, leaf):
        x, process = leaf.x, leaf.process
        wanted = process.log_rates_into(x, process.times(leaf.t, x)) > LOG_ZERO / 2
        to = torch.arange(wanted.shape[-1], device=x.device).expand(wanted.shape)
        return cls(leaf.ratios(to, wanted, LOG_ZERO).scatter(-1, x.unsqueeze(-1), 0.0), process, x, leaf.t)

    @classmethod
    def latest(cls, process):
        return process.latest

    def log_ratio(self) -> Tensor:
        return self.process.widen(self.value)

    def step(self, s: Clock) -> Law:
        return step_of_ratios(self, s)

    @classmethod
    def converted(cls, other: FinitePrediction, **options) -> "Ratio":
        value = torch.where(other._moves(), other.log_ratio(), LOG_ZERO).scatter(-1, other.x_t.unsqueeze(-1), 0.0)
        return cls(value, other.process, other.x_t, other.t)


class Rates(FinitePrediction):
    """log reverse rates; entries where the forward process has no way back are not read."""

    @classmethod
    def latest(cls, process):
        return process.latest

    def local(self) -> Local:
        rates = torch.where(self._moves(), self.process.widen(self.value), LOG_ZERO)
        return Local(log_rates=without_self(rates, self.x_t))

    def log_ratio(self) -> Tensor:
        return self.process.widen(self.value) - self.process.log_rates_into(self.x_t, self.t).clamp_min(LOG_ZERO / 2)

    def step(self, s: Clock) -> Law:
        return step_of_ratios(self, s)

    @classmethod
    def converted(cls, other: FinitePrediction, **options) -> "Rates":
        rates = other.local().log_rates
        assert rates is not None
        return cls(rates, other.process, other.x_t, other.t)


class Transition(FinitePrediction):
    """Logits of p(x_s | x_t) for one grid pair (s, t), over all states (eq:condition-reversal-nn-disc)."""

    tied_to_grid = True
    needs_generator = False

    @classmethod
    def sizes(cls, process: FiniteProcess) -> list[int]:
        return [process.state_space.size]

    def __init__(self, value: Tensor, process: FiniteProcess, x_t: Tensor, t: Clock, *, s: Clock):
        super().__init__(value, process, x_t, t)
        self.s = as_times(s, x_t.shape[0], x_t.device, "s")

    def log_ratio(self) -> Tensor:
        raise refuse(self, Ratio, "it belongs to its grid pair (s, t) and has no generator; use a Chain's bound")

    def step(self, s: Clock) -> Law:
        s = as_times(s, self.x_t.shape[0], self.x_t.device, "s")
        if may_read(s) and not torch.allclose(s, self.s, rtol=0, atol=1e-9):
            raise refuse(self, Transition, f"it was made for s = {self.s[0].item():g}, not for s = {s[0].item():g}")
        logits = self.process.widen(self.value)
        stay = self.process.log_one_hot(self.x_t, logits.dtype)
        movable = self.process.movable(self.x_t).unsqueeze(-1)
        return Categorical.normalised(torch.where(movable, logits, stay))

    @classmethod
    def converted(cls, other: FinitePrediction, **options) -> "Transition":
        if "s" not in options:
            raise ValueError("a Transition belongs to a grid pair (s, t): pass s, as in prediction.to(Transition, s=s)")
        s = as_times(options["s"], other.x_t.shape[0], other.x_t.device, "s")
        law = other.step(s)
        assert isinstance(law, Categorical)
        return cls(law.log_probs, other.process, other.x_t, other.t, s=s)
