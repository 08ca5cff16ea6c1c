"""Samplers: one small class per numerical method, and `sample`, which runs them."""

from unnoise.samplers import grids, remasking
from unnoise.samplers.adaptive import AdaptiveODE
from unnoise.samplers.base import Ancestral, Info, OneStep, Problem, Sampler, Stepping
from unnoise.samplers.captured import captured
from unnoise.samplers.captured_run import CapturedRun
from unnoise.samplers.categorical_ddim import CategoricalDDIM
from unnoise.samplers.correctors import DetailedBalance, Langevin, PredictorCorrector
from unnoise.samplers.events import Gillespie, Uniformization
from unnoise.samplers.exponential import DEIS, DPMSolverPP, Exponential, UniPC
from unnoise.samplers.generic import FromGenerator
from unnoise.samplers.heun import Heun
from unnoise.samplers.leaps import Euler, TauLeaping, ThetaRK2, ThetaTrapezoidal
from unnoise.samplers.linear import DDIM, EulerMaruyama
from unnoise.samplers.products import Frozen, Leaves
from unnoise.samplers.remasking import Remasking
from unnoise.samplers.replacement import Replacement
from unnoise.samplers.reveal import FirstHitting, Reveal
from unnoise.samplers.routing import Routed
from unnoise.samplers.sample import sample
from unnoise.samplers.tokens import Tokens

__all__ = [
    "AdaptiveODE",
    "Ancestral",
    "CapturedRun",
    "CategoricalDDIM",
    "DDIM",
    "DEIS",
    "DPMSolverPP",
    "DetailedBalance",
    "Euler",
    "EulerMaruyama",
    "Exponential",
    "FirstHitting",
    "FromGenerator",
    "Frozen",
    "Gillespie",
    "Heun",
    "Info",
    "Langevin",
    "Leaves",
    "OneStep",
    "PredictorCorrector",
    "Problem",
    "Remasking",
    "Replacement",
    "Reveal",
    "Routed",
    "Sampler",
    "Stepping",
    "TauLeaping",
    "ThetaRK2",
    "ThetaTrapezoidal",
    "Tokens",
    "UniPC",
    "Uniformization",
    "captured",
    "grids",
    "remasking",
    "sample",
]
