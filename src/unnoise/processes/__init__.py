"""Forward processes: Gaussian noise, noise on categories and counts, heat flow, their products, and chains on a grid."""

from unnoise.processes import d3pm, noise_laws, rate_matrices
from unnoise.processes.base import Process
from unnoise.processes.bounded_counts import BirthDeath
from unnoise.processes.categorical import Interpolation, Masking, Uniform
from unnoise.processes.chain import Chain
from unnoise.processes.cir import CoxIngersollRoss
from unnoise.processes.counts import Thinning
from unnoise.processes.ctmc import RateMatrix
from unnoise.processes.dense import DenseProcess
from unnoise.processes.finite import FiniteProcess
from unnoise.processes.gaussian import Gaussian
from unnoise.processes.heat import HeatProcess, WrappedNormal
from unnoise.processes.matrix_chain import MatrixChain
from unnoise.processes.mixture import Mixture
from unnoise.processes.product import Product
from unnoise.processes.rank_one import FixedNoise, RankOne
from unnoise.processes.simulated import Simulated
from unnoise.processes.sphere_heat import SphereHeat
from unnoise.processes.wright_fisher import WrightFisher

__all__ = [
    "BirthDeath",
    "Chain",
    "CoxIngersollRoss",
    "DenseProcess",
    "FiniteProcess",
    "FixedNoise",
    "Gaussian",
    "HeatProcess",
    "Interpolation",
    "Masking",
    "MatrixChain",
    "Mixture",
    "Process",
    "Product",
    "RankOne",
    "RateMatrix",
    "Simulated",
    "SphereHeat",
    "Thinning",
    "Uniform",
    "WrappedNormal",
    "WrightFisher",
    "d3pm",
    "noise_laws",
    "rate_matrices",
]
