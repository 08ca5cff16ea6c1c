"""unnoise: diffusion models on any state space.

A forward Markov process, its learned time reversal and the bound that trains it, driven by the generator: numbers,
categories and any product of them under one theory and one API.
"""

from unnoise import generators, objectives, oracles, processes, schedules, spaces
from unnoise.denoiser import Denoiser, fit_variance
from unnoise.generators import Generator, divergence
from unnoise.noise import Noise as NoiseSource
from unnoise.objectives import (
    Bound,
    Count,
    Grid,
    Importance,
    Objective,
    Quadrature,
    Stratified,
    bound,
    decoders,
    weightings,
)
from unnoise.predictions import (
    Clean,
    Flow,
    InexactConversion,
    Mean,
    Noise,
    Posterior,
    Prediction,
    Rates,
    Ratio,
    RawPosterior,
    Score,
    Transition,
    Velocity,
    variances,
)
from unnoise.processes import Chain, Gaussian, Masking, Process, Product, Uniform
from unnoise.spaces import Euclidean, Finite

__version__ = "0.1.0"

__all__ = [
    "Bound",
    "Chain",
    "Clean",
    "Count",
    "Denoiser",
    "Euclidean",
    "Finite",
    "Flow",
    "Gaussian",
    "Generator",
    "Grid",
    "Importance",
    "InexactConversion",
    "Masking",
    "Mean",
    "Noise",
    "NoiseSource",
    "Objective",
    "Posterior",
    "Prediction",
    "Process",
    "Product",
    "Quadrature",
    "Rates",
    "Ratio",
    "RawPosterior",
    "Score",
    "Stratified",
    "Transition",
    "Uniform",
    "Velocity",
    "bound",
    "decoders",
    "divergence",
    "fit_variance",
    "generators",
    "objectives",
    "oracles",
    "processes",
    "schedules",
    "spaces",
    "variances",
    "weightings",
]
