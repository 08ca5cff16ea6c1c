"""Models of categories that are seen through numbers (`hybrids`)."""

from functools import partial
from typing import Any

from unnoise.hybrids import ArgmaxSchedule, Curriculum
from unnoise.processes import Process, Uniform
from unnoise.training.models import Modelled, register_model
from unnoise.training.token_models import categories


@register_model("duo")
def _(process: Process, hints: dict[str, Any], curriculum: bool = True, top: int | None = None) -> Modelled:
    """Uniform noise as the argmax of a Gaussian path, with a curriculum of soft tokens at first."""
    space = categories(process, "duo")
    noise = Uniform(space.size, space.shape, ArgmaxSchedule(space.size))
    return Modelled(process=noise, objective=partial(Curriculum, top=top) if curriculum else None)
