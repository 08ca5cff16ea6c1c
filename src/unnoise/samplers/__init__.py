"""Samplers: one small class per numerical method, and `sample`, which runs them."""

from unnoise.samplers import grids, psi, remasking
from unnoise.samplers.adaptive import AdaptiveODE
from unnoise.samplers.ancestral import Ancestral
from unnoise.samplers.base import OneStep, Sampler, Stepping
from unnoise.samplers.captured import captured
from unnoise.samplers.captured_run import CapturedRun
from unnoise.samplers.categorical_ddim import CategoricalDDIM
from unnoise.samplers.clean import Clip, Threshold
from unnoise.samplers.consistency import MultistepConsistency
from unnoise.samplers.correctors import DetailedBalance, Langevin, PredictorCorrector
from unnoise.samplers.defaults import Plan, default_leaf_method, default_sampler, default_steps, own_plan
from unnoise.samplers.deis import DEIS, LMS
from unnoise.samplers.encode import encode
from unnoise.samplers.entropy_bounded import EntropyBounded
from unnoise.samplers.events import Gillespie, Uniformization
from unnoise.samplers.exponential import DPMSolverPP, Exponential, UniPC
from unnoise.samplers.generic import FromGenerator
from unnoise.samplers.heun import Heun
from unnoise.samplers.leaps import Euler, TauLeaping, ThetaRK2, ThetaTrapezoidal
from unnoise.samplers.linear import DDIM, EulerMaruyama
from unnoise.samplers.one_by_one import OneByOne
from unnoise.samplers.particles import NoSurvivors, ParticleRecord, Particles
from unnoise.samplers.problem import Info, Problem
from unnoise.samplers.products import Frozen, Leaves
from unnoise.samplers.psi import Psi
from unnoise.samplers.registry import register_sampler
from unnoise.samplers.remasking import Remasking
from unnoise.samplers.replacement import Replacement
from unnoise.samplers.reveal import FirstHitting, Reveal
from unnoise.samplers.routing import Routed
from unnoise.samplers.sample import sample
from unnoise.samplers.state import Memory, State, StopSampling
from unnoise.samplers.stirring import Circulation, Reversible, Rotation, Stirring, stirred
from unnoise.samplers.thinned_flights import ThinnedFlights
from unnoise.samplers.tokens import Tokens
from unnoise.samplers.weighed import Said, WeighedDenoiser
from unnoise.samplers.written import register_part, written

__all__ = [
    "AdaptiveODE",
    "Ancestral",
    "CapturedRun",
    "CategoricalDDIM",
    "Circulation",
    "Clip",
    "DDIM",
    "DEIS",
    "DPMSolverPP",
    "DetailedBalance",
    "EntropyBounded",
    "Euler",
    "EulerMaruyama",
    "Exponential",
    "FirstHitting",
    "FromGenerator",
    "Frozen",
    "Gillespie",
    "Heun",
    "Info",
    "LMS",
    "Langevin",
    "Leaves",
    "Memory",
    "MultistepConsistency",
    "NoSurvivors",
    "OneByOne",
    "OneStep",
    "ParticleRecord",
    "Particles",
    "Plan",
    "PredictorCorrector",
    "Problem",
    "Psi",
    "Remasking",
    "Replacement",
    "Reveal",
    "Reversible",
    "Rotation",
    "Routed",
    "Said",
    "Sampler",
    "State",
    "Stepping",
    "Stirring",
    "StopSampling",
    "TauLeaping",
    "ThetaRK2",
    "ThetaTrapezoidal",
    "ThinnedFlights",
    "Threshold",
    "Tokens",
    "UniPC",
    "Uniformization",
    "WeighedDenoiser",
    "captured",
    "default_leaf_method",
    "default_sampler",
    "default_steps",
    "encode",
    "grids",
    "own_plan",
    "psi",
    "register_part",
    "register_sampler",
    "remasking",
    "sample",
    "stirred",
    "written",
]

for _kind in (
    AdaptiveODE,
    Ancestral,
    CategoricalDDIM,
    DDIM,
    DEIS,
    DPMSolverPP,
    EntropyBounded,
    Euler,
    EulerMaruyama,
    Exponential,
    FirstHitting,
    FromGenerator,
    Gillespie,
    Heun,
    LMS,
    MultistepConsistency,
    PredictorCorrector,
    Psi,
    Remasking,
    Replacement,
    Reveal,
    Routed,
    TauLeaping,
    ThetaRK2,
    ThetaTrapezoidal,
    UniPC,
    Uniformization,
):
    register_sampler(_kind.__name__)(_kind)

for _part in (
    Circulation,
    Clip,
    DetailedBalance,
    Langevin,
    Reversible,
    Rotation,
    Threshold,
    Tokens,
    psi.MaxRescale,
    remasking.Cap,
    remasking.Confidence,
    remasking.Loop,
    remasking.Rate,
    remasking.Rescale,
):
    register_part(_part.__name__)(_part)
