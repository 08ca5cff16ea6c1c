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
from unnoise.processes.finite_speed import FiniteSpeed
from unnoise.processes.flips import FlippingVelocity
from unnoise.processes.gaussian import Gaussian
from unnoise.processes.hamiltonian import BouncyParticle, RandomisedHamiltonian
from unnoise.processes.heat import HeatProcess, WrappedNormal
from unnoise.processes.jump_diffusion import JumpDiffusion
from unnoise.processes.kac import Kac
from unnoise.processes.matrix_chain import MatrixChain
from unnoise.processes.mixture import Mixture
from unnoise.processes.product import Product
from unnoise.processes.rank_one import FixedNoise, RankOne
from unnoise.processes.refreshed import RefreshedVelocity
from unnoise.processes.rotation_heat import RotationHeat
from unnoise.processes.simulated import Simulated
from unnoise.processes.sphere_heat import SphereHeat
from unnoise.processes.superposition import Superposition
from unnoise.processes.wright_fisher import WrightFisher
from unnoise.processes.zigzag import ZigZag

__all__ = [
    "BirthDeath",
    "BouncyParticle",
    "Chain",
    "CoxIngersollRoss",
    "DenseProcess",
    "FiniteProcess",
    "FiniteSpeed",
    "FixedNoise",
    "FlippingVelocity",
    "Gaussian",
    "HeatProcess",
    "Interpolation",
    "Kac",
    "JumpDiffusion",
    "Masking",
    "MatrixChain",
    "Mixture",
    "Process",
    "Product",
    "RandomisedHamiltonian",
    "RankOne",
    "RateMatrix",
    "RotationHeat",
    "RefreshedVelocity",
    "Simulated",
    "SphereHeat",
    "Superposition",
    "Thinning",
    "Uniform",
    "WrappedNormal",
    "WrightFisher",
    "ZigZag",
    "d3pm",
    "noise_laws",
    "rate_matrices",
]
