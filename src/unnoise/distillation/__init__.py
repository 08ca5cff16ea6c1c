"""Distillation: students that need fewer steps than the denoiser they are taught by."""

from unnoise.distillation.base import Distillation
from unnoise.distillation.consistency import Consistency
from unnoise.distillation.fit import distill
from unnoise.distillation.methods import METHODS, bounded, distillation, options_of, plan_of
from unnoise.distillation.progressive import Progressive

__all__ = [
    "METHODS",
    "Consistency",
    "Distillation",
    "Progressive",
    "bounded",
    "distill",
    "distillation",
    "options_of",
    "plan_of",
]
