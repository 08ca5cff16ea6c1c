"""Samplers: one small class per numerical method, and `sample`, which runs them."""

from unnoise.samplers import grids
from unnoise.samplers.base import Ancestral, Info, OneStep, Problem, Sampler, Stepping
from unnoise.samplers.exponential import DEIS, DPMSolverPP, Exponential, UniPC
from unnoise.samplers.heun import Heun
from unnoise.samplers.leaps import Euler, TauLeaping, ThetaRK2, ThetaTrapezoidal
from unnoise.samplers.linear import DDIM, EulerMaruyama
from unnoise.samplers.reveal import FirstHitting, Reveal
from unnoise.samplers.sample import sample
from unnoise.samplers.tokens import Tokens

__all__ = [
    "Ancestral",
    "DDIM",
    "DEIS",
    "DPMSolverPP",
    "Euler",
    "EulerMaruyama",
    "Exponential",
    "FirstHitting",
    "Heun",
    "Info",
    "OneStep",
    "Problem",
    "Reveal",
    "Sampler",
    "Stepping",
    "TauLeaping",
    "ThetaRK2",
    "ThetaTrapezoidal",
    "Tokens",
    "UniPC",
    "grids",
    "sample",
]
