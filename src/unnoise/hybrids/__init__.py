"""Hybrids: categories and numbers that are noised together, as one model of the categories."""

from unnoise.hybrids.beside import Beside, beside
from unnoise.hybrids.co_evolving import CoEvolving, Neighbours
from unnoise.hybrids.paired import Hardened, Paired

__all__ = ["Beside", "CoEvolving", "Hardened", "Neighbours", "Paired", "beside"]
