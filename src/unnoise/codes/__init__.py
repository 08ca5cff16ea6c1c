"""Codes: what is noised in place of the data, and how data are read off it."""

from unnoise.codes.base import Code
from unnoise.codes.codebook import Codebook, CodewordMean, bits, embeddings, one_hot

__all__ = ["Code", "Codebook", "CodewordMean", "bits", "embeddings", "one_hot"]
