"""The bound, what it is weighted by, where it is visited and how it ends."""

from unnoise.objectives import decoders, weightings
from unnoise.objectives.band_times import BandTimes
from unnoise.objectives.bound import Objective, bound
from unnoise.objectives.closed_forms import closed_form
from unnoise.objectives.defaults import default_decoder, default_times, default_weighting
from unnoise.objectives.learned_schedule import fit_schedule
from unnoise.objectives.mixed_times import MixedTimes
from unnoise.objectives.observed import Observed
from unnoise.objectives.quadrature import Quadrature
from unnoise.objectives.terms import Terms
from unnoise.objectives.times import (
    Grid,
    Importance,
    JointTimes,
    MaskedCount,
    Stratified,
    Times,
    UniformTimes,
    Visits,
)

__all__ = [
    "Terms",
    "BandTimes",
    "MaskedCount",
    "Grid",
    "Importance",
    "JointTimes",
    "MixedTimes",
    "Objective",
    "Observed",
    "Quadrature",
    "Stratified",
    "Times",
    "UniformTimes",
    "Visits",
    "bound",
    "closed_form",
    "decoders",
    "default_decoder",
    "default_times",
    "default_weighting",
    "fit_schedule",
    "weightings",
]
