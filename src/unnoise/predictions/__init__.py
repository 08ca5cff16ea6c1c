"""Typed network outputs and the exact conversions between them."""

from unnoise.predictions import variance as variances
from unnoise.predictions.algebra import combine, combine_leaf, tilt
from unnoise.predictions.base import InexactConversion, OutputReading, Prediction
from unnoise.predictions.clouds import CloudMixture
from unnoise.predictions.continuous import Clean, ContinuousPrediction, Flow, Mean, Noise, Score, Velocity
from unnoise.predictions.counts import CountPrediction, CountRatio, Intensity, Remaining
from unnoise.predictions.energy import Energy, difference_kind
from unnoise.predictions.finite import FinitePrediction, Posterior, Rates, Ratio, RawPosterior, Transition
from unnoise.predictions.flip_ratios import FlightPrediction, FlipRatios
from unnoise.predictions.flows import score_of_flow
from unnoise.predictions.from_marginal import FromMarginal
from unnoise.predictions.heat import HeatPrediction, TangentScore, UnitScore
from unnoise.predictions.kinds import Kinds, admitted_kinds, default_kind, resolve_kinds
from unnoise.predictions.linear_heads import LinearHead, linear_weights
from unnoise.predictions.mixture_posterior import MixturePosterior
from unnoise.predictions.orthant import OrthantScore
from unnoise.predictions.product import ProductPrediction
from unnoise.predictions.registry import register_kind
from unnoise.predictions.simplex import SimplexPrediction, SimplexScore, VertexPosterior
from unnoise.predictions.slopes import Slopes
from unnoise.predictions.velocity_density import VelocityDensity

__all__ = [
    "Clean",
    "CloudMixture",
    "ContinuousPrediction",
    "CountPrediction",
    "CountRatio",
    "Energy",
    "FinitePrediction",
    "FlightPrediction",
    "FlipRatios",
    "Flow",
    "FromMarginal",
    "HeatPrediction",
    "InexactConversion",
    "Intensity",
    "Kinds",
    "LinearHead",
    "Mean",
    "MixturePosterior",
    "Noise",
    "Posterior",
    "Prediction",
    "ProductPrediction",
    "Rates",
    "Ratio",
    "RawPosterior",
    "OrthantScore",
    "OutputReading",
    "Remaining",
    "Score",
    "SimplexPrediction",
    "SimplexScore",
    "Slopes",
    "TangentScore",
    "Transition",
    "UnitScore",
    "Velocity",
    "VertexPosterior",
    "VelocityDensity",
    "admitted_kinds",
    "combine",
    "combine_leaf",
    "default_kind",
    "difference_kind",
    "linear_weights",
    "register_kind",
    "resolve_kinds",
    "score_of_flow",
    "tilt",
    "variances",
]

_SAVED: tuple[type[Prediction], ...] = (
    *(Clean, Noise, Score, Velocity, Flow),
    *(Posterior, RawPosterior, Ratio, Rates),
    *(Remaining, Intensity, CountRatio, Energy),
    *(UnitScore, TangentScore),
    *(SimplexScore, VertexPosterior, OrthantScore),
    *(CloudMixture, MixturePosterior),
    *(FlipRatios, VelocityDensity),
)
for _kind in _SAVED:
    register_kind(_kind)
