"""Forward processes: Gaussian noise, masking, uniform noise, their products, and chains on a grid."""

from unnoise.processes.base import Process
from unnoise.processes.categorical import Masking, RankOne, Uniform
from unnoise.processes.chain import Chain
from unnoise.processes.finite import FiniteProcess
from unnoise.processes.gaussian import Gaussian
from unnoise.processes.product import Product

__all__ = ["Chain", "FiniteProcess", "Gaussian", "Masking", "Process", "Product", "RankOne", "Uniform"]
