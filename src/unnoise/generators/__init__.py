"""Drift, diffusion and jumps: the generator, its adjoint, reversal and change of measure, its equations on grids and along
paths, and the divergence of two reverse processes."""

from unnoise.generators.currents import Graph, SplitCurrent, jump_current, split_current
from unnoise.generators.fokker_planck import FokkerPlanck
from unnoise.generators.generator import Generator
from unnoise.generators.kronecker import KroneckerSum, uniformised
from unnoise.generators.local import JumpKernel, Local, divergence_rate
from unnoise.generators.path_estimates import (
    Estimate,
    Paths,
    dynkin,
    exponential_martingale,
    log_density_ratio,
    path_divergence,
    simulated,
)
from unnoise.generators.reversal import ProductReversal, Reversal, divergence

__all__ = [
    "Estimate",
    "FokkerPlanck",
    "Generator",
    "Graph",
    "JumpKernel",
    "KroneckerSum",
    "Local",
    "Paths",
    "ProductReversal",
    "Reversal",
    "SplitCurrent",
    "divergence",
    "divergence_rate",
    "dynkin",
    "exponential_martingale",
    "jump_current",
    "log_density_ratio",
    "path_divergence",
    "simulated",
    "split_current",
    "uniformised",
]
