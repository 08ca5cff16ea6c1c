"""Noise schedules: alpha, sigma, log-SNR, their derivatives and inverses."""

from unnoise.schedules.base import Schedule
from unnoise.schedules.learned import Learned
from unnoise.schedules.made import Custom, FromSDE, PerCoordinate
from unnoise.schedules.named import EDM, VE, Cosine, Linear, LinearBeta, LogSNRLinear, Polynomial
from unnoise.schedules.wider import CosineOffset, Sigmoid, SubVP

__all__ = [
    "Cosine",
    "CosineOffset",
    "Custom",
    "EDM",
    "FromSDE",
    "Learned",
    "Linear",
    "LinearBeta",
    "LogSNRLinear",
    "PerCoordinate",
    "Polynomial",
    "Schedule",
    "Sigmoid",
    "SubVP",
    "VE",
]
