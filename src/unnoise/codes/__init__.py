"""Codes: what is noised in place of the data, and how data are read off it."""

from unnoise.codes.base import Code
from unnoise.codes.codebook import Codebook, bits, corners, embeddings, one_hot
from unnoise.codes.evidence import CodewordMean, Codewords, VectorEvidence, evidence_of
from unnoise.codes.from_encoder import FromEncoder, ReadVectors
from unnoise.codes.orthant import CodewordLines

__all__ = [
    "Code",
    "Codebook",
    "CodewordLines",
    "CodewordMean",
    "Codewords",
    "VectorEvidence",
    "FromEncoder",
    "ReadVectors",
    "bits",
    "corners",
    "embeddings",
    "evidence_of",
    "one_hot",
]
