"""How far a training is from converged, from the bounds that were recorded on the way.

With f(s) the bound on held-out rows after a share s of the training, smoothed over the last seventh before s,

    d1 = f(1/2) - f(1),    d0 = f(1/4) - f(1/2),    r = d1/d0, kept within [LEAST_RATIO, MOST_RATIO]
    next doubling of the time: d1 r,    ten times the time: d1 r (1 - r^k)/(1 - r),  k = log2(10)

as for bounds that fall like a power of time or faster.  Averaged weights are what is measured, so that the fall of the
learning rate moves the end of the curve little; what it moves it down is in d1, and r shrinks it.  A gain matters if it is
more than the tolerance:  NATS for each coordinate, or a tenth of the bound's standard error, whichever is larger.

    overfitting   the smoothed bound at the end lies above its least by half the tolerance and twice its noise
    improving     ten times the time would gain more than the tolerance
    converged     it would not
    unknown       no bound was measured twice

A training of less than two warm-ups has hardly begun, whatever its curve says, and so has one of less than ten whose bound
has not moved, for networks may stay where they start for some hundred updates; both count as improving.  One that ended by
patience was watched long enough: a network that starts from a law may have nothing to add.
"""

from dataclasses import asdict, dataclass
from math import ceil, isfinite, log, log2, sqrt
from typing import Any

from unnoise.training.metrics import read_metrics
from unnoise.training.run import Run

NATS = 0.01
LEAST_RATIO, MOST_RATIO = 0.1, 0.7
WINDOW = 1 / 7
TENFOLD = log2(10)
FEW = 4  # measurements after the start


@dataclass(frozen=True)
class Convergence:
    verdict: str  # converged, improving, overfitting or unknown
    words: str
    gain_per_doubling: float | None = None  # nats per example
    tolerance: float | None = None
    minutes: float | None = None  # that seem enough, where it improves

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def curve_of(lines: list[dict[str, Any]], name: str = "validation_bound") -> list[tuple[int, float]]:
    """(step, bound) of the recorded lines, as far as they are numbers."""
    return [(line["step"], line[name]) for line in lines if name in line and isfinite(line[name])]


def smoothed(curve: list[tuple[int, float]], share: float) -> float:
    """The mean of the points in the last seventh before a share of the way, of the nearest one where there is none."""
    end = curve[-1][0] * share
    near = [y for x, y in curve if end * (1 - WINDOW) - 1e-9 <= x <= end + 1e-9]
    return sum(near) / len(near) if near else interpolated(curve, end)


def interpolated(curve: list[tuple[int, float]], at: float) -> float:
    for (x0, y0), (x1, y1) in zip(curve, curve[1:], strict=False):
        if x0 <= at <= x1:
            return y0 + (y1 - y0) * (at - x0) / max(x1 - x0, 1)
    return curve[0][1] if at < curve[0][0] else curve[-1][1]


def noise_of(curve: list[tuple[int, float]]) -> float:
    """The deviation of a point from its neighbours' line, over the second half."""
    half = [y for x, y in curve if x >= curve[-1][0] / 2]
    bends = [(a - 2 * b + c) / sqrt(6) for a, b, c in zip(half, half[1:], half[2:], strict=False)]
    return sqrt(sum(bend**2 for bend in bends) / len(bends)) if bends else 0.0


def convergence(
    lines: list[dict[str, Any]],
    dimension: int,
    seconds: float,
    reason: str = "",
    se: float | None = None,
    warmup: int = 0,
) -> Convergence:
    """Of the lines of `metrics.jsonl`, the coordinates of an example, how long the training took and why it ended, and the
    steps in which the learning rate rose."""
    curve = curve_of(lines)
    if len(curve) < 2 or curve[-1][0] <= 0:
        return Convergence("unknown", "how far it is from converged is not known: no bound was measured on held-out rows")
    tolerance = max(NATS * dimension, 0.1 * se if se is not None and isfinite(se) else 0.0)
    worse = _overfitting(curve, tolerance)
    if worse is not None:
        return Convergence("overfitting", worse, tolerance=tolerance)
    steps, moved = curve[-1][0], curve[0][1] - min(y for _, y in curve)
    if steps < 2 * warmup or (steps < 10 * warmup and moved < tolerance and reason != "patience"):
        enough = _rounded(seconds / 60 * max(10, 20 * warmup / steps))
        said = f"hardly begun: {steps} steps, of which {warmup} warm up: train it about {_time(enough)}"
        return Convergence("improving", said, tolerance=tolerance, minutes=enough)
    gain, ratio = doubling_gain(curve)
    left = gain * (1 - ratio**TENFOLD) / (1 - ratio)
    minutes = seconds / 60
    if len([x for x, _ in curve if x > 0]) < FEW and curve[0][1] - curve[-1][1] > tolerance:
        left = max(left, 2 * tolerance)  # a few updates, all of which helped
        gain = max(gain, tolerance)
    if left <= tolerance:
        ended = " (it stopped by itself)" if reason == "patience" else ""
        said = f"converged{ended}: ten times the time would gain less than {tolerance:.2g} nats"
        return Convergence("converged", said, max(0.0, gain), tolerance)
    doublings = min(5, max(1, ceil(log(max(gain, 1e-12) * ratio / (tolerance * (1 - ratio))) / -log(ratio))))
    enough = _rounded(minutes * 2**doublings)
    said = f"still improving, by about {gain:.2g} nats for each doubling of the time: train it about {_time(enough)}"
    return Convergence("improving", said, gain, tolerance, enough)


def of_run(run: Run, reason: str = "", dimension: int | None = None) -> Convergence:
    """Of a run on disk, as far as it is trained."""
    lines = read_metrics(run.metrics)
    seconds = max((line["seconds"] for line in lines if isfinite(line.get("seconds", float("nan")))), default=0.0)
    errors = [line["validation_se"] for line in lines if "validation_se" in line]
    size = run.task().space.dimension if dimension is None else dimension
    return convergence(lines, size, seconds, reason, errors[-1] if errors else None, run.config.train.warmup)


def doubling_gain(curve: list[tuple[int, float]]) -> tuple[float, float]:
    """(what the next doubling of the time gains, the ratio from one doubling to the next)."""
    last, half, quarter = (smoothed(curve, share) for share in (1.0, 0.5, 0.25))
    late, early = half - last, quarter - half
    ratio = min(max(late / early, LEAST_RATIO), MOST_RATIO) if early > 0 else MOST_RATIO
    return late * ratio, ratio


def _overfitting(curve: list[tuple[int, float]], tolerance: float) -> str | None:
    means = [
        (curve[i][0], sum(y for _, y in curve[i - 1 : i + 2]) / len(curve[i - 1 : i + 2])) for i in range(1, len(curve))
    ]
    step, least = min(means, key=lambda point: point[1])
    rise = smoothed(curve, 1.0) - least
    if step > 0.9 * curve[-1][0] or rise <= max(tolerance / 2, 2 * noise_of(curve)):
        return None
    return (
        f"overfitting: the bound on held-out rows was best at about step {step} of {curve[-1][0]} and rose by {rise:.2g} "
        f"nats; the best state is kept, and more rows or a smaller network help, longer training does not"
    )


def _rounded(minutes: float) -> float:
    """Two figures, upwards."""
    if minutes <= 0:
        return 0.0
    unit = 10.0 ** (int(log(minutes, 10) // 1) - 1)
    return ceil(minutes / unit - 1e-9) * unit


def _time(minutes: float) -> str:
    shown = f"{minutes / 60:.2g} hours" if minutes >= 120 else f"{minutes:.2g} minutes"
    return f"{shown} (--minutes {minutes:.3g})"
