"""The bound while a model trains: on the held-out rows, and on some of those that it is trained on.

A training that the clock ends has the bound measured in MOMENTS moments at least, spread evenly, however few updates fit
into its time, so that there is a curve to look at; these measurements take at most SHARE of the time.  The gap between the
two bounds is what the model has learned by heart.
"""

from time import perf_counter
from typing import Any

from torch import Tensor

from unnoise.objectives import Objective
from unnoise.shapes import Int
from unnoise.training.config import TrainConfig
from unnoise.training.data_order import Source
from unnoise.training.telling import ToldObjective
from unnoise.training.validation import Validation, validate

MOMENTS, SHARE = 24, 0.1
TRAINING_ROWS, TRAINING_DRAWS = 256, 2  # at most, of the rows trained on


class Watch:
    def __init__(
        self,
        bound: Objective | ToldObjective,
        source: Source,
        rows: Int[Tensor, "rows"],
        held: Int[Tensor, "held"],
        config: TrainConfig,
    ):
        self.bound, self.source, self.held, self.config = bound, source, held, config
        self.some = rows[: min(TRAINING_ROWS, max(64, len(held)))] if len(held) else rows[:0]
        self.seen, self.spent, self.last = 0, 0.0, 0.0

    def measure(self, learner: Any, accelerator: Any, batch: int, log_fill: Any) -> tuple[Validation, Validation]:
        """(of the held-out rows, of rows trained on), with the weights that are shown."""
        c, began = self.config, perf_counter()
        draws = min(TRAINING_DRAWS, c.validation_draws)
        with learner.shown():
            common = (learner.precision, log_fill)
            held = validate(self.bound, self.source, self.held, accelerator, batch, c.validation_draws, c.seed, *common)
            some = validate(self.bound, self.source, self.some, accelerator, batch, draws, c.seed, *common)
        self.last = perf_counter() - began
        self.spent += self.last
        return held, some

    def begin(self, done: float) -> None:
        self.seen = int(done * MOMENTS + 1e-9)

    def due(self, done: float, seconds: float) -> bool:
        """Whether the bound is measured now beside the regular times, when a share `done` of the training lies behind."""
        passed = int(done * MOMENTS + 1e-9)
        if passed <= self.seen or self.spent + self.last > SHARE * seconds:
            return False
        self.seen = passed
        return True
