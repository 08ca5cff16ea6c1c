"""Noise schedules: alpha, sigma, log-SNR, their derivatives and inverses."""

from unnoise.schedules.base import Schedule
from unnoise.schedules.composed import Custom, FromSDE, PerCoordinate, Staggered
from unnoise.schedules.learned import Learned
from unnoise.schedules.more_named import CosineOffset, Sigmoid, SubVP
from unnoise.schedules.named import EDM, VE, Cosine, Linear, LinearBeta, LogSNRLinear, Polynomial
from unnoise.schedules.published import FromBetas, OneMinusCosine, Power

__all__ = [
    "Cosine",
    "CosineOffset",
    "Custom",
    "EDM",
    "FromBetas",
    "FromSDE",
    "Learned",
    "Linear",
    "LinearBeta",
    "LogSNRLinear",
    "OneMinusCosine",
    "PerCoordinate",
    "Polynomial",
    "Power",
    "Schedule",
    "Staggered",
    "Sigmoid",
    "SubVP",
    "VE",
]
