"""Hybrids: categories seen through numbers, and models of both."""

from unnoise.hybrids.argmax_law import ArgmaxLaw
from unnoise.hybrids.argmax_schedule import ArgmaxSchedule

__all__ = ["ArgmaxLaw", "ArgmaxSchedule"]
