"""What is trained: the process of a format under a schedule, and the options of the objective that suit the two.

Made once and handed on: the recipe chooses the network by it, the run's configuration describes it, and the run takes its
process for the denoiser that is trained.
"""

from dataclasses import dataclass
from typing import Any

from unnoise.data.base import Format
from unnoise.processes import Process
from unnoise.training.schedules import scheduled


@dataclass(frozen=True)
class Task:
    format: Format
    process: Process  # under the schedule
    options: dict[str, Any]  # of an `Objective`
    schedule: str | None  # of the noise of numbers, by name; None: the format's own
    words: str  # the format's own process: to notice where another is made later

    @classmethod
    def of(cls, format: Format, schedule: str | None = None) -> "Task":
        own = format.process()
        words = repr(own)  # before a schedule takes it over
        process, options = scheduled(own, schedule, format.objective_options())
        return cls(format, process, options, schedule, words)
