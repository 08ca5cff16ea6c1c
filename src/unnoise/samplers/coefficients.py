"""Coefficients of methods on numbers, and how predictions are read by them.

All are computed in float64 on the host before the loop, of all steps at once; in the loop each is a plain number, or with a
schedule per coordinate a tensor where the states are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unnoise.predictions import Clean, ContinuousPrediction, Mean, Prediction
from unnoise.processes import Gaussian, Process
from unnoise.samplers.combinations import Coefficient, combine
from unnoise.samplers.problem import on_host
from unnoise.schedules import Schedule
from unnoise.shapes import Float

Change = Callable[[Tensor], Tensor]
OnBoth = tuple[Coefficient, Coefficient]  # on x, on the value


@dataclass
class Coefficients:
    """One step's coefficients: on x, on the clean predictions (newest first), on z.

    Also those of many steps at once, as tensors [steps] or, with a schedule per coordinate, [steps, *shape].
    """

    keep: Coefficient
    weights: tuple[Coefficient, ...]
    noise: Coefficient | None = None

    def split(self, device: torch.device | str = "cpu") -> list["Coefficients"]:
        """Step by step, ready for the loop."""
        noise = [] if self.noise is None else [self.noise]
        columns = [settled(c, device) for c in [self.keep, *self.weights, *noise] if isinstance(c, Tensor)]
        last = -1 if noise else None
        return [Coefficients(row[0], tuple(row[1:last]), row[-1] if noise else None) for row in zip(*columns, strict=True)]


def settled(coefficients: Float[Tensor, "steps *shape"], device: torch.device | str) -> list[float] | list[Tensor]:
    """Plain numbers where there is one for all coordinates (no kernel is launched for them), else where the states are."""
    return coefficients.tolist() if coefficients.ndim == 1 else list(coefficients.to(device).unbind(0))


class Moments:
    """alpha, sigma, lambda of the grid's times, float64 [times] (or [times, *shape])."""

    def __init__(self, schedule: Schedule, times: Tensor):
        schedule = on_host(schedule)
        self.schedule, self.times = schedule, times
        self.alpha, self.sigma = schedule.alpha(times), schedule.sigma(times)
        self.log_snr = schedule.log_snr(times) / 2  # lambda
        self.finite = self.log_snr.reshape(len(times), -1).isfinite().all(1).tolist()


def combined(row: Coefficients, x: Tensor, past: Sequence[Tensor]) -> Tensor:
    """keep x + sum_j weight_j past_j."""
    weights = row.weights[: len(past)]
    return combine((x, *past), [[(row.keep, 0), *((weight, j + 1) for j, weight in enumerate(weights))]])[0]


def gaussian_of(process: Process, name: str) -> Gaussian:
    """The process of a run that `refuse` has let pass."""
    if not isinstance(process, Gaussian):
        raise TypeError(no_gaussian(name, process))
    return process


def no_gaussian(name: str, process: Process) -> str | None:
    """Why a method for numbers does not hold for a process; None where it does."""
    if isinstance(process, Gaussian):
        return None
    return f"{name} moves numbers under Gaussian noise, and {type(process).__name__} has none"


def continuous(prediction: Prediction) -> ContinuousPrediction:
    """A prediction of numbers; an energy says its score, and a law of x_0 its mean."""
    own = prediction.by_leaf()
    if isinstance(own.process, Gaussian) and not isinstance(own, ContinuousPrediction) and own.tells_clean(own.process):
        own = own.to(Clean)
    if not isinstance(own, ContinuousPrediction):
        raise TypeError(f"a {type(own).__name__} prediction says nothing of numbers: predict Clean, Velocity, Flow, ...")
    return own


class Reader:
    """Clean predictions at the times of a list, by coefficients computed once per kind; `change` is what is done to each."""

    def __init__(self, process: Gaussian, times: Tensor, device: torch.device, change: Change | None = None):
        self.process, self.times, self.device, self.change = process, times, device, change
        self.known: dict[type, tuple[list[bool], list, list]] = {}

    def linear(self, prediction: Prediction, x: Tensor, i: int) -> tuple[Tensor, OnBoth | None]:
        """D = on_x x + on_value value from the prediction at times[i]: the value, and the coefficients; None: D is it."""
        if self.change is None:
            return self._as_told(prediction, i)
        return self.clean(prediction, x, i), None

    def _as_told(self, prediction: Prediction, i: int) -> tuple[Tensor, OnBoth | None]:
        if isinstance(prediction, Clean):
            return prediction.value, None
        prediction = continuous(prediction)
        kind = type(prediction)
        if kind is Mean:
            return prediction.to(Clean).value, None  # its coefficients depend on its own pair (s, t)
        says, on_x, on_value = self._known(kind)
        if not says[i]:
            raise self._silent(kind, i)
        return kind.to_linear(self.process, prediction.value), (on_x[i], on_value[i])

    def coefficients(self, kind: type[ContinuousPrediction], count: int) -> tuple[list[Coefficient], list[Coefficient]]:
        """On x and on the value, at the first times of the list; refused where one of them says nothing of x_0."""
        says, on_x, on_value = self._known(kind)
        if not all(says[:count]):
            raise self._silent(kind, says.index(False))
        return on_x[:count], on_value[:count]

    def _known(self, kind: type[ContinuousPrediction]) -> tuple[list[bool], list, list]:
        if kind not in self.known:
            self.known[kind] = self._coefficients(kind)
        return self.known[kind]

    def _silent(self, kind: type[ContinuousPrediction], i: int) -> ValueError:
        at = f"a {kind.__name__} prediction says nothing of x_0 at t = {self.times[i].item():g}, where"
        if float(self.process.schedule.alpha(self.times[i]).min()) > 1e-12:
            return ValueError(
                f"{at} D = alpha b - sigma a of its target a x_0 + b eps is 0: choose coefficients whose D is 0 nowhere "
                f"inside (0, 1)"
            )
        return ValueError(
            f"{at} alpha = 0: start the grid a little later, such as start=0.999, or predict Clean, Velocity or Flow"
        )

    def clean(self, prediction: Prediction, x: Tensor, i: int) -> Tensor:
        """D itself: at most two multiply-adds."""
        clean, on = self._as_told(prediction, i)
        if on is not None:
            clean = combine((x, clean), [[(on[1], 1), (on[0], 0)]])[0]
        return clean if self.change is None else self.change(clean)

    @torch.no_grad()
    def _coefficients(self, kind: type[ContinuousPrediction]) -> tuple[list[bool], list, list]:
        """x_0 = (b x_t - sigma value)/(alpha b - sigma a) for a kind's target a x_0 + b eps; and where that is not 0/0."""
        m = Moments(self.process.schedule, self.times)
        a, b = kind.target_coefficients(m.schedule, m.times)
        determinant = m.alpha * b - m.sigma * a
        on_x, on_value = b / determinant, -m.sigma / determinant
        says = ((on_value.abs() < 1e100) & on_x.isfinite()).reshape(len(m.times), -1).all(1)
        return says.tolist(), settled(on_x, self.device), settled(on_value, self.device)
