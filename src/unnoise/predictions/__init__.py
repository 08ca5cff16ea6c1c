"""Typed network outputs and the exact conversions between them."""

from unnoise.predictions import variance as variances
from unnoise.predictions.base import InexactConversion, Prediction
from unnoise.predictions.continuous import Clean, ContinuousPrediction, Flow, Mean, Noise, Score, Velocity
from unnoise.predictions.finite import FinitePrediction, Posterior, Rates, Ratio, RawPosterior, Transition
from unnoise.predictions.product import ProductPrediction

__all__ = [
    "Clean",
    "ContinuousPrediction",
    "FinitePrediction",
    "Flow",
    "InexactConversion",
    "Mean",
    "Noise",
    "Posterior",
    "Prediction",
    "ProductPrediction",
    "Rates",
    "Ratio",
    "RawPosterior",
    "Score",
    "Transition",
    "Velocity",
    "variances",
]
