"""Hybrids: categories seen through numbers, and models of both."""

from unnoise.hybrids.argmax_law import ArgmaxLaw
from unnoise.hybrids.argmax_schedule import ArgmaxSchedule
from unnoise.hybrids.common_noise import common_noise
from unnoise.hybrids.curriculum import Cooling, Curriculum
from unnoise.hybrids.duo import Duo, duo
from unnoise.hybrids.softened import Softened, dense, sparse

__all__ = [
    "ArgmaxLaw",
    "ArgmaxSchedule",
    "Cooling",
    "Curriculum",
    "Duo",
    "Softened",
    "common_noise",
    "dense",
    "duo",
    "sparse",
]
