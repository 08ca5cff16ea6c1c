"""Uniform diffusion with the curriculum, from what the data asks for.

    made = duo(format.process())                 # masked or uniform tokens: the same tokens under uniform noise
    denoiser = un.Denoiser(network, made.process)
    objective = made.objective(denoiser)         # what is minimised; `objective.begin(done)` before every update

`un.Objective(denoiser)` or `un.bound` measures it, as any other model.
"""

from dataclasses import dataclass, field
from typing import Any

from unnoise.denoiser import AnyDenoiser
from unnoise.hybrids.curriculum import Curriculum
from unnoise.processes import FixedNoise, Process, Uniform
from unnoise.schedules import Schedule


@dataclass(frozen=True)
class Duo:
    """The process, and the objective of a denoiser on it."""

    process: Uniform
    options: dict[str, Any] = field(default_factory=dict)  # of the curriculum

    def objective(self, denoiser: AnyDenoiser, **options: Any) -> Curriculum:
        return Curriculum(denoiser, **{**self.options, **options})


def duo(process: Process, schedule: Schedule | None = None, **options: Any) -> Duo:
    """For data of one leaf of tokens; `schedule` is that of the uniform noise (None: the process's own), `options` are those
    of `Curriculum`."""
    if not isinstance(process, FixedNoise) or process.space.sizes is not None:
        raise ValueError(
            f"Duo noises tokens of one alphabet, and this data has {type(process).__name__}: train text or sequences, or "
            f"leave the model out"
        )
    own = process.schedule if schedule is None else schedule
    return Duo(Uniform(process.space.size, process.space.shape, own), options)
