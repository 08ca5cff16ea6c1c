"""Typed network outputs and the exact conversions between them."""

from unnoise.predictions import variance as variances
from unnoise.predictions.base import InexactConversion, Prediction
from unnoise.predictions.continuous import Clean, ContinuousPrediction, Flow, Mean, Noise, Score, Velocity
from unnoise.predictions.counts import CountPrediction, CountRatio, Intensity, Remaining
from unnoise.predictions.energy import Energy
from unnoise.predictions.finite import FinitePrediction, Posterior, Rates, Ratio, RawPosterior, Transition
from unnoise.predictions.from_marginal import FromMarginal
from unnoise.predictions.product import ProductPrediction

__all__ = [
    "Clean",
    "ContinuousPrediction",
    "CountPrediction",
    "CountRatio",
    "Energy",
    "FinitePrediction",
    "Flow",
    "FromMarginal",
    "InexactConversion",
    "Intensity",
    "Mean",
    "Noise",
    "Posterior",
    "Prediction",
    "ProductPrediction",
    "Rates",
    "Ratio",
    "RawPosterior",
    "Remaining",
    "Score",
    "Transition",
    "Velocity",
    "variances",
]
