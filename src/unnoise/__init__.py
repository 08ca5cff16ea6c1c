"""unnoise: diffusion models on any state space.

A forward Markov process, its learned time reversal and the bound that trains it, driven by the generator: numbers,
categories and any product of them under one theory and one API.
"""

from importlib import import_module
from typing import Any

from unnoise import generators, likelihoods, objectives, oracles, predictions, processes, samplers, schedules, spaces, tree
from unnoise.conditions import Shared
from unnoise.covariance import Covariance, Stationary
from unnoise.denoiser import AnyDenoiser, Denoiser, fit_variance
from unnoise.generators import Generator, Local, divergence
from unnoise.likelihoods import Dequantised, Enumeration, PathWeighted, ProbabilityFlow, likelihood
from unnoise.noise import NoiseSource
from unnoise.objectives import (
    Grid,
    Importance,
    MaskedCount,
    MixedTimes,
    Objective,
    Quadrature,
    Stratified,
    Terms,
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
    FromMarginal,
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
    noise_laws,
    rate_matrices,
)
from unnoise.samplers import encode, sample
from unnoise.spaces import Counts, Euclidean, Finite, JumpKernel, Space

__version__ = "0.1.0"

LATER = ("data", "evaluation", "model", "networks", "training")  # parts that are imported when they are asked for
FRONT = ("Model", "fit", "load")  # names of `unnoise.model`, likewise


def __getattr__(name: str) -> Any:
    if name in LATER:
        return import_module(f"unnoise.{name}")
    if name in FRONT:
        return getattr(import_module("unnoise.model"), name)
    raise AttributeError(f"module 'unnoise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *LATER, *FRONT})


__all__ = [
    "AnyDenoiser",
    "BirthDeath",
    "Chain",
    "Clean",
    "MaskedCount",
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
    "FromMarginal",
    "Gaussian",
    "Generator",
    "Grid",
    "Importance",
    "InexactConversion",
    "Intensity",
    "JumpKernel",
    "Local",
    "Interpolation",
    "Masking",
    "MatrixChain",
    "Mean",
    "MixedTimes",
    "Mixture",
    "Model",
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
    "Shared",
    "Space",
    "Stationary",
    "Stratified",
    "Terms",
    "Thinning",
    "Transition",
    "Uniform",
    "Velocity",
    "bound",
    "d3pm",
    "decoders",
    "divergence",
    "encode",
    "fit",
    "fit_schedule",
    "fit_variance",
    "generators",
    "likelihood",
    "likelihoods",
    "load",
    "noise_laws",
    "objectives",
    "oracles",
    "predictions",
    "processes",
    "rate_matrices",
    "sample",
    "samplers",
    "schedules",
    "spaces",
    "tree",
    "variances",
    "weightings",
]
