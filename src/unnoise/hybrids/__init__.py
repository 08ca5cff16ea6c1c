"""Hybrids: categories seen through numbers, or noised together with them, and models of both."""

from unnoise.hybrids.argmax_law import ArgmaxLaw
from unnoise.hybrids.argmax_schedule import ArgmaxSchedule
from unnoise.hybrids.beside import Beside, beside
from unnoise.hybrids.blended import Blend, Blended
from unnoise.hybrids.co_evolving import CoEvolving
from unnoise.hybrids.common_noise import common_noise
from unnoise.hybrids.curriculum import Cooling, Curriculum
from unnoise.hybrids.duo import Duo, duo
from unnoise.hybrids.hardened import Hardened
from unnoise.hybrids.paired import Paired
from unnoise.hybrids.softened import Softened, dense, sparse

__all__ = [
    "ArgmaxLaw",
    "ArgmaxSchedule",
    "Beside",
    "Blend",
    "Blended",
    "CoEvolving",
    "Cooling",
    "Curriculum",
    "Duo",
    "Hardened",
    "Paired",
    "Softened",
    "beside",
    "common_noise",
    "dense",
    "duo",
    "sparse",
]
