"""The bound, what it is weighted by, where it is visited and how it ends."""

from unnoise.objectives import decoders, weightings
from unnoise.objectives.bound import Bound, Objective, bound
from unnoise.objectives.learned_schedule import fit_schedule
from unnoise.objectives.mixed_count import MixedCount
from unnoise.objectives.observed import Observed
from unnoise.objectives.times import Count, Grid, Importance, Quadrature, Stratified, Times, Uniform

__all__ = [
    "Bound",
    "Count",
    "Grid",
    "Importance",
    "MixedCount",
    "Objective",
    "Observed",
    "Quadrature",
    "Stratified",
    "Times",
    "Uniform",
    "bound",
    "decoders",
    "fit_schedule",
    "weightings",
]
