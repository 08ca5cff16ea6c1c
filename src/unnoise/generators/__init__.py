"""Drift, diffusion and jumps: the generator, its adjoint and reversal, and the divergence of two reverse processes."""

from unnoise.generators.generator import Generator
from unnoise.generators.local import Local, divergence_rate
from unnoise.generators.reversal import ProductReversal, Reversal, divergence

__all__ = ["Generator", "Local", "ProductReversal", "Reversal", "divergence", "divergence_rate"]
