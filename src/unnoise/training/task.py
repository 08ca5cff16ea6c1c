"""What is trained: the process of a format under a schedule, and the options of the objective that suit the two.

Made once and handed on: the recipe chooses the network by it, the run's configuration describes it, and the run takes its
process for the denoiser that is trained.
"""

from dataclasses import dataclass
from typing import Any

from unnoise.codes import Code
from unnoise.data.base import Format
from unnoise.predictions import Kinds, default_kind
from unnoise.processes import Gaussian, Process
from unnoise.spaces import Space
from unnoise.training.models import Modelled, modelled
from unnoise.training.schedules import scheduled


@dataclass(frozen=True)
class Task:
    format: Format
    process: Process  # under the schedule
    options: dict[str, Any]  # of an `Objective`
    schedule: str | None  # of the noise of numbers, by name; None: the format's own
    words: str  # the format's own process: to notice where another is made later
    space: Space  # of the data
    model: dict[str, Any] | None = None  # what is noised in place of the data, {"name", "options"}
    made: Modelled | None = None  # of it

    @classmethod
    def of(cls, format: Format, schedule: str | None = None, model: dict[str, Any] | None = None) -> "Task":
        own = format.process()
        words, space = repr(own), own.space  # before a schedule takes it over
        made = None if model is None else modelled(model, own, format.network_hints())
        given = (own, format.objective_options()) if made is None else (made.process, made.options)
        if schedule is not None and made is not None and isinstance(made.process, Gaussian) and made.process.schedule.shape:
            raise ValueError(
                f"schedule = {schedule!r}: the coordinates of this model have schedules of their own: leave it out"
            )
        process, options = scheduled(given[0], schedule, given[1])
        return cls(format, process, options, schedule, words, space, model, made)

    def again(self) -> "Task":
        """The same with a process of its own, whose parameters are another denoiser's."""
        return Task.of(self.format, self.schedule, self.model)

    def code(self) -> Code | None:
        """A code for a denoiser, where something stands for the data; one that rounds reads them where the bound begins."""
        if self.made is None or self.made.code is None:
            return None
        code = self.made.code()
        if code.rounds and "cutoff" in self.options:
            code.cutoff = self.options["cutoff"]
        return code

    @property
    def kinds(self) -> Kinds:
        """What a denoiser predicts unless told."""
        if self.made is not None and self.made.predicts is not None:
            return self.made.predicts
        code = self.code()
        own = None if code is None else code.kinds(self.process.base)
        return default_kind(self.process) if own is None else own
