"""Drift, diffusion and jumps: the generator, its adjoint and reversal, and the divergence of two reverse processes."""

from unnoise.generators.generator import Generator
from unnoise.generators.local import JumpKernel, Local, divergence_rate
from unnoise.generators.reversal import ProductReversal, Reversal, divergence

__all__ = ["Generator", "JumpKernel", "Local", "ProductReversal", "Reversal", "divergence", "divergence_rate"]
