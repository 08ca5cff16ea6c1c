"""The bound, what it is weighted by, where it is visited and how it ends."""

from unnoise.objectives import decoders, weightings
from unnoise.objectives.bound import Objective, Terms, bound
from unnoise.objectives.learned_schedule import fit_schedule
from unnoise.objectives.mixed_times import MixedTimes
from unnoise.objectives.observed import Observed
from unnoise.objectives.times import Grid, Importance, MaskedCount, Quadrature, Stratified, Times, UniformTimes

__all__ = [
    "Terms",
    "MaskedCount",
    "Grid",
    "Importance",
    "MixedTimes",
    "Objective",
    "Observed",
    "Quadrature",
    "Stratified",
    "Times",
    "UniformTimes",
    "bound",
    "decoders",
    "fit_schedule",
    "weightings",
]
