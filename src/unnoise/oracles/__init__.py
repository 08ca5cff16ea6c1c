"""Exactly solvable problems: the truth that everything is tested against."""

from unnoise.oracles.base import Oracle
from unnoise.oracles.components import (
    CategoricalLeaf,
    Components,
    GaussianLeaf,
    conditional_gaussian,
    mixture,
    normal,
    table,
)
from unnoise.oracles.counts import BinomialLeaf, PoissonLeaf, binomial_mixture, poisson_mixture
from unnoise.oracles.heat import HeatLeaf, heat_mixture
from unnoise.oracles.markov import MarkovChain
from unnoise.oracles.superposition import RoundLeaf, round_mixture

__all__ = [
    "BinomialLeaf",
    "CategoricalLeaf",
    "Components",
    "GaussianLeaf",
    "HeatLeaf",
    "MarkovChain",
    "Oracle",
    "PoissonLeaf",
    "RoundLeaf",
    "binomial_mixture",
    "conditional_gaussian",
    "heat_mixture",
    "mixture",
    "normal",
    "poisson_mixture",
    "round_mixture",
    "table",
]
