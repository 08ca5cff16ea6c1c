"""unnoise: diffusion models on any state space.

A forward Markov process, its learned time reversal and the bound that trains it, driven by the generator: numbers,
categories and any product of them under one theory and one API.
"""

from importlib import import_module
from typing import Any

from unnoise import generators, likelihoods, objectives, oracles, processes, samplers, schedules, spaces
from unnoise.covariance import Covariance, Stationary
from unnoise.denoiser import Denoiser, fit_variance
from unnoise.generators import Generator, divergence
from unnoise.likelihoods import Dequantised, Enumeration, PathWeighted, ProbabilityFlow, likelihood
from unnoise.noise import Noise as NoiseSource
from unnoise.objectives import (
    Bound,
    Count,
    Grid,
    Importance,
    MixedCount,
    Objective,
    Quadrature,
    Stratified,
    bound,
    decoders,
    fit_schedule,
    weightings,
)
from unnoise.predictions import (
    Clean,
    CountRatio,
    Energy,
    Flow,
    InexactConversion,
    Intensity,
    Mean,
    Noise,
    Posterior,
    Prediction,
    Rates,
    Ratio,
    RawPosterior,
    Remaining,
    Score,
    Transition,
    Velocity,
    variances,
)
from unnoise.processes import (
    BirthDeath,
    Chain,
    DenseProcess,
    FiniteProcess,
    Gaussian,
    Interpolation,
    Masking,
    MatrixChain,
    Mixture,
    Process,
    Product,
    RateMatrix,
    Thinning,
    Uniform,
    d3pm,
    noises,
    rates,
)
from unnoise.samplers import sample
from unnoise.spaces import Counts, Euclidean, Finite

__version__ = "0.1.0"

LATER = ("data", "evaluation", "networks", "training")  # parts that are imported when they are asked for


def __getattr__(name: str) -> Any:
    if name in LATER:
        return import_module(f"unnoise.{name}")
    raise AttributeError(f"module 'unnoise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *LATER})


__all__ = [
    "BirthDeath",
    "Bound",
    "Chain",
    "Clean",
    "Count",
    "CountRatio",
    "Counts",
    "Covariance",
    "Denoiser",
    "DenseProcess",
    "Dequantised",
    "Energy",
    "Enumeration",
    "Euclidean",
    "Finite",
    "FiniteProcess",
    "Flow",
    "Gaussian",
    "Generator",
    "Grid",
    "Importance",
    "InexactConversion",
    "Intensity",
    "Interpolation",
    "Masking",
    "MatrixChain",
    "Mean",
    "MixedCount",
    "Mixture",
    "Noise",
    "NoiseSource",
    "Objective",
    "PathWeighted",
    "Posterior",
    "Prediction",
    "ProbabilityFlow",
    "Process",
    "Product",
    "Quadrature",
    "RateMatrix",
    "Rates",
    "Ratio",
    "RawPosterior",
    "Remaining",
    "Score",
    "Stationary",
    "Stratified",
    "Thinning",
    "Transition",
    "Uniform",
    "Velocity",
    "bound",
    "d3pm",
    "decoders",
    "divergence",
    "fit_schedule",
    "fit_variance",
    "generators",
    "likelihood",
    "likelihoods",
    "noises",
    "objectives",
    "oracles",
    "processes",
    "rates",
    "sample",
    "samplers",
    "schedules",
    "spaces",
    "variances",
    "weightings",
]
