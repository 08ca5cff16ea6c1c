"""Latent diffusion: what is noised are states that an encoder makes of the data, and a decoder reads the data off them."""

from unnoise.latent.autoencoder import Autoencoder
from unnoise.latent.coders import ArrayCoders, Coders, ColumnCoders, SequenceCoders, coders_for
from unnoise.latent.data_laws import (
    CategoriesLaw,
    CountsLaw,
    DataLaw,
    LeavesLaw,
    LevelsLaw,
    LevelsNormal,
    NumbersLaw,
    likelihood_of,
)
from unnoise.latent.extras import Adversarial, Extra, Perceptual, classifier
from unnoise.latent.fixed_code import FixedCode
from unnoise.latent.normal_code import NormalCode
from unnoise.latent.quantised_code import QuantisedCode

__all__ = [
    "Adversarial",
    "ArrayCoders",
    "Autoencoder",
    "CategoriesLaw",
    "Coders",
    "ColumnCoders",
    "CountsLaw",
    "DataLaw",
    "Extra",
    "FixedCode",
    "LeavesLaw",
    "LevelsLaw",
    "LevelsNormal",
    "NormalCode",
    "NumbersLaw",
    "Perceptual",
    "QuantisedCode",
    "SequenceCoders",
    "classifier",
    "coders_for",
    "likelihood_of",
]
