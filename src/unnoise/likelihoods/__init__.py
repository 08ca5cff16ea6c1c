"""How likely data is under a model: one small class per method, and `likelihood`, which picks one."""

from unnoise.likelihoods.base import Likelihood, LikelihoodInfo
from unnoise.likelihoods.dequantise import Dequantised, UniformDequantisation, VariationalDequantisation
from unnoise.likelihoods.enumerate import Enumeration
from unnoise.likelihoods.flow import ProbabilityFlow
from unnoise.likelihoods.likelihood import default_method, likelihood
from unnoise.likelihoods.paths import PathInfo, PathWeighted

__all__ = [
    "Dequantised",
    "Enumeration",
    "Likelihood",
    "LikelihoodInfo",
    "PathInfo",
    "PathWeighted",
    "ProbabilityFlow",
    "UniformDequantisation",
    "VariationalDequantisation",
    "default_method",
    "likelihood",
]
