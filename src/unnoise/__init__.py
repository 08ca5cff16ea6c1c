"""unnoise: diffusion models on any state space.

A forward Markov process, its learned time reversal and the bound that trains it, driven by the generator: numbers,
categories and any product of them under one theory and one API.

A name is fetched from its module when it is first asked for, so that what needs no tensors, such as the help of the command,
does not wait for them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unnoise import (
        codes,
        distillation,
        generators,
        guidance,
        hybrids,
        latent,
        likelihoods,
        objectives,
        oracles,
        predictions,
        processes,
        samplers,
        schedules,
        spaces,
        tree,
    )
    from unnoise.conditions import Shared
    from unnoise.covariance import Covariance, Stationary
    from unnoise.denoiser import AnyDenoiser, Denoiser, fit_variance
    from unnoise.distillation import distill
    from unnoise.generators import Generator, Local, divergence
    from unnoise.guidance import targets
    from unnoise.likelihoods import Dequantised, Enumeration, PathWeighted, ProbabilityFlow
    from unnoise.likelihoods.likelihood import likelihood
    from unnoise.model import Model, fit, load
    from unnoise.noise import NoiseSource
    from unnoise.objectives import (
        Grid,
        Importance,
        MaskedCount,
        MixedTimes,
        Objective,
        Quadrature,
        Stratified,
        Terms,
        bound,
        decoders,
        fit_schedule,
        weightings,
    )
    from unnoise.predictions import (
        Clean,
        CloudMixture,
        CountRatio,
        Energy,
        FlipRatios,
        Flow,
        FromMarginal,
        InexactConversion,
        Intensity,
        Mean,
        MixturePosterior,
        Noise,
        OrthantScore,
        Posterior,
        Prediction,
        Rates,
        Ratio,
        RawPosterior,
        Remaining,
        Score,
        SimplexScore,
        Slopes,
        TangentScore,
        Transition,
        UnitScore,
        Velocity,
        VelocityDensity,
        VertexPosterior,
        variances,
    )
    from unnoise.processes import (
        BirthDeath,
        BouncyParticle,
        Chain,
        CoxIngersollRoss,
        DenseProcess,
        FiniteProcess,
        Gaussian,
        HeatProcess,
        Interpolation,
        JumpDiffusion,
        Kac,
        Masking,
        MatrixChain,
        Mixture,
        Process,
        Product,
        RandomisedHamiltonian,
        RateMatrix,
        RotationHeat,
        Simulated,
        SphereHeat,
        Superposition,
        Thinning,
        Uniform,
        WrappedNormal,
        WrightFisher,
        ZigZag,
        d3pm,
        noise_laws,
        rate_matrices,
    )
    from unnoise.samplers.encode import encode
    from unnoise.samplers.sample import sample
    from unnoise.spaces import (
        Circle,
        Counts,
        Euclidean,
        Finite,
        JumpKernel,
        Orthant,
        PhaseSpace,
        Rotations,
        Simplex,
        Space,
        Sphere,
        Torus,
    )

__version__ = "0.1.0"

MODULES = (
    *(
        "checks",
        "codes",
        "conditions",
        "covariance",
        "data",
        "denoiser",
        "distillation",
        "evaluation",
        "extensions",
        "generators",
        "guidance",
        "hybrids",
        "latent",
        "laws",
    ),
    *(
        "likelihoods",
        "model",
        "networks",
        "noise",
        "objectives",
        "oracles",
        "predictions",
        "processes",
        "samplers",
        "schedules",
    ),
    *("shapes", "spaces", "training", "tree", "verify"),
)
NAMES = {  # by the module that each name is fetched from
    "conditions": "Shared",
    "covariance": "Covariance Stationary",
    "denoiser": "AnyDenoiser Denoiser fit_variance",
    "generators": "Generator Local divergence",
    "guidance": "targets",
    "likelihoods": "Dequantised Enumeration PathWeighted ProbabilityFlow",
    "likelihoods.likelihood": "likelihood",
    "model": "Model fit load",
    "distillation": "distill",
    "noise": "NoiseSource",
    "objectives": (
        "Grid Importance MaskedCount MixedTimes Objective Quadrature Stratified Terms bound decoders fit_schedule weightings"
    ),
    "predictions": (
        "Clean CloudMixture CountRatio Energy FlipRatios Flow FromMarginal InexactConversion Intensity Mean "
        "MixturePosterior Noise OrthantScore Posterior Prediction Rates Ratio RawPosterior Remaining Score SimplexScore "
        "Slopes TangentScore Transition UnitScore Velocity VelocityDensity VertexPosterior variances"
    ),
    "processes": (
        "BirthDeath BouncyParticle Chain CoxIngersollRoss DenseProcess FiniteProcess Gaussian HeatProcess Interpolation "
        "JumpDiffusion Kac Masking MatrixChain Mixture Process Product RandomisedHamiltonian RateMatrix RotationHeat "
        "Simulated SphereHeat Superposition Thinning Uniform WrappedNormal WrightFisher ZigZag d3pm noise_laws "
        "rate_matrices"
    ),
    "samplers.encode": "encode",
    "samplers.sample": "sample",
    "spaces": "Circle Counts Euclidean Finite JumpKernel Orthant PhaseSpace Rotations Simplex Space Sphere Torus",
}
_HOME = {name: module for module, names in NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return import_module(f"unnoise.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'unnoise' has no attribute {name!r}")
    found = getattr(import_module(f"unnoise.{_HOME[name]}"), name)
    globals()[name] = found  # the next time it is there
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *MODULES, *_HOME})


__all__ = [
    "AnyDenoiser",
    "BirthDeath",
    "BouncyParticle",
    "Chain",
    "Circle",
    "Clean",
    "CloudMixture",
    "CountRatio",
    "Counts",
    "Covariance",
    "CoxIngersollRoss",
    "Denoiser",
    "DenseProcess",
    "Dequantised",
    "Energy",
    "Enumeration",
    "Euclidean",
    "Finite",
    "FiniteProcess",
    "FlipRatios",
    "Flow",
    "FromMarginal",
    "Gaussian",
    "Generator",
    "Grid",
    "HeatProcess",
    "Importance",
    "InexactConversion",
    "Intensity",
    "Interpolation",
    "JumpDiffusion",
    "JumpKernel",
    "Kac",
    "Local",
    "MaskedCount",
    "Masking",
    "MatrixChain",
    "Mean",
    "MixedTimes",
    "Mixture",
    "MixturePosterior",
    "Model",
    "Noise",
    "NoiseSource",
    "Objective",
    "Orthant",
    "OrthantScore",
    "PathWeighted",
    "PhaseSpace",
    "Posterior",
    "Prediction",
    "ProbabilityFlow",
    "Process",
    "Product",
    "Quadrature",
    "RandomisedHamiltonian",
    "RateMatrix",
    "Rates",
    "Ratio",
    "RawPosterior",
    "Remaining",
    "RotationHeat",
    "Rotations",
    "Score",
    "Shared",
    "Simplex",
    "SimplexScore",
    "Simulated",
    "Slopes",
    "Space",
    "Sphere",
    "SphereHeat",
    "Stationary",
    "Stratified",
    "Superposition",
    "TangentScore",
    "Terms",
    "Thinning",
    "Torus",
    "Transition",
    "Uniform",
    "UnitScore",
    "Velocity",
    "VelocityDensity",
    "VertexPosterior",
    "WrappedNormal",
    "WrightFisher",
    "ZigZag",
    "bound",
    "codes",
    "d3pm",
    "decoders",
    "distill",
    "distillation",
    "divergence",
    "encode",
    "fit",
    "fit_schedule",
    "fit_variance",
    "generators",
    "guidance",
    "hybrids",
    "latent",
    "likelihood",
    "likelihoods",
    "load",
    "noise_laws",
    "objectives",
    "oracles",
    "predictions",
    "processes",
    "rate_matrices",
    "sample",
    "samplers",
    "schedules",
    "spaces",
    "targets",
    "tree",
    "variances",
    "weightings",
]
