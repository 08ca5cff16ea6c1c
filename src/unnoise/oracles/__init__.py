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
from unnoise.oracles.markov import MarkovChain

__all__ = [
    "CategoricalLeaf",
    "Components",
    "GaussianLeaf",
    "MarkovChain",
    "Oracle",
    "conditional_gaussian",
    "mixture",
    "normal",
    "table",
]
