"""Noise schedules: alpha, sigma, log-SNR, their derivatives and inverses."""

from unnoise.schedules.base import Schedule
from unnoise.schedules.made import Custom, FromSDE, PerCoordinate
from unnoise.schedules.named import EDM, VE, Cosine, Linear, LinearBeta, LogSNRLinear, Polynomial

__all__ = [
    "Cosine",
    "Custom",
    "EDM",
    "FromSDE",
    "Linear",
    "LinearBeta",
    "LogSNRLinear",
    "PerCoordinate",
    "Polynomial",
    "Schedule",
    "VE",
]
