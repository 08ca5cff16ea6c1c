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
from unnoise.oracles.flip_grid import FlipGrid
from unnoise.oracles.heat import HeatLeaf, heat_mixture
from unnoise.oracles.jumps import CloudLeaf, cloud_mixture
from unnoise.oracles.kac import KacMixture
from unnoise.oracles.markov import MarkovChain
from unnoise.oracles.orthant import OrthantLeaf, orthant_mixture
from unnoise.oracles.simplex import VertexLeaf, WrightFisherLeaf, simplex_mixture, vertex_table
from unnoise.oracles.superposition import RoundLeaf, round_mixture
from unnoise.oracles.velocity_grid import VelocityGrid

__all__ = [
    "BinomialLeaf",
    "CategoricalLeaf",
    "CloudLeaf",
    "Components",
    "FlipGrid",
    "GaussianLeaf",
    "HeatLeaf",
    "KacMixture",
    "MarkovChain",
    "Oracle",
    "PoissonLeaf",
    "VertexLeaf",
    "WrightFisherLeaf",
    "RoundLeaf",
    "VelocityGrid",
    "binomial_mixture",
    "cloud_mixture",
    "conditional_gaussian",
    "heat_mixture",
    "mixture",
    "normal",
    "poisson_mixture",
    "OrthantLeaf",
    "orthant_mixture",
    "simplex_mixture",
    "round_mixture",
    "table",
    "vertex_table",
]
