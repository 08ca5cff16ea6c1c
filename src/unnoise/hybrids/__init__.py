"""Hybrids: categories and numbers that are noised together, as one model of the categories."""

from unnoise.hybrids.beside import Beside, beside
from unnoise.hybrids.blended import Blend, Blended
from unnoise.hybrids.co_evolving import CoEvolving
from unnoise.hybrids.hardened import Hardened
from unnoise.hybrids.paired import Paired

__all__ = ["Beside", "Blend", "Blended", "CoEvolving", "Hardened", "Paired", "beside"]
