"""How good samples of sequences are, beside real ones.

    ngram_distance_n   total variation between the laws of n symbols in a row, of these rows and of the training rows
    entropy            of a row's symbols in bits, mean over rows: low where symbols repeat
    unique             share of rows that differ from all earlier ones
    copies             share of rows that are training rows
    words_known        text of characters: share of the distinct words that the training text has
    judge_bits         bits that an autoregressive model of the training rows gives their own symbols, per symbol, and as a
                       perplexity

A distance between histograms is above 0 for real rows as well, the more the fewer they are, so everything is said of as many
unseen rows too.  The judge alone is fooled by rows that repeat what is common: its low perplexity counts for something only
beside an entropy like that of real rows.  A third set of rows has independent symbols of the right frequencies.

A padded sequence is its symbols up to the first END and this one; what follows says nothing, and is END again here.
"""

from math import exp, inf, log
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unnoise.data.sequence_files import END
from unnoise.data.sequences import Sequences
from unnoise.evaluation.judge import Judge
from unnoise.evaluation.scores import chosen
from unnoise.noise import NoiseSource
from unnoise.shapes import Bool, Float, Int

LONGEST_GRAM = 4
REFERENCE = 2_000_000  # symbols of the training rows that n-grams are counted in, at most

Histogram = tuple[np.ndarray, np.ndarray]  # codes in order, and their probabilities


def ended(format: Sequences, x: Int[Tensor, "rows length"]) -> Int[Tensor, "rows length"]:
    """Rows with END all the way from the first one on."""
    if not format.padded:
        return x
    end = format.alphabet.index(END)
    return torch.where((x == end).long().cumsum(1) > 0, end, x)


def own_symbols(format: Sequences, x: Int[Tensor, "rows length"]) -> Bool[Tensor, "rows length"]:
    """Which places hold a symbol of the sequence, its first END among them."""
    if not format.padded:
        return torch.ones_like(x, dtype=torch.bool)
    end = (x == format.alphabet.index(END)).long()
    return end.cumsum(1) - end == 0


def histogram(x: Int[Tensor, "rows length"], own: Bool[Tensor, "rows length"], n: int, size: int) -> Histogram:
    """The law of n symbols in a row, as the digits of a number to the base `size`."""
    places = x.shape[1] - n + 1
    code = sum(x[:, k : k + places] * size ** (n - 1 - k) for k in range(n))
    assert isinstance(code, Tensor)
    codes, counts = np.unique(code[own[:, n - 1 :]].numpy(), return_counts=True)
    return codes, counts / max(1, counts.sum())


def total_variation(p: Histogram, q: Histogram) -> float:
    """Half the sum of |p - q|: 0 for one law, 1 for laws with nothing in common."""
    _, where = np.unique(np.concatenate([p[0], q[0]]), return_inverse=True)
    return 0.5 * float(np.abs(np.bincount(where, np.concatenate([p[1], -q[1]]))).sum())


def entropies(x: Int[Tensor, "rows length"], own: Bool[Tensor, "rows length"], size: int) -> Float[Tensor, "rows"]:
    """Of the symbols of each row, in bits."""
    out = []
    for part, mine in zip(x.split(256), own.split(256), strict=True):
        p = torch.zeros(len(part), size, dtype=torch.float64).scatter_add_(1, part, mine.double())
        p = p / p.sum(1, keepdim=True)
        out.append(torch.special.entr(p).sum(1) / log(2))
    return torch.cat(out)


def words(format: Sequences, texts: list[str]) -> set[str]:
    """Distinct words; those at the edges of a window may be cut and are left out."""
    inner = slice(None) if format.padded else slice(1, -1)
    return {word for text in texts for word in text.split()[inner]}


class SequenceScores:
    """The figures of rows against one set of training rows."""

    def __init__(self, format: Sequences, train: Int[Tensor, "rows length"], judge: Judge | None = None, seed: int = 0):
        self.format, self.judge, self.size = format, judge, len(format.alphabet)
        train = ended(format, train)
        few = train[chosen(len(train), max(1, REFERENCE // train.shape[1]), seed)]
        grams = range(1, min(LONGEST_GRAM, train.shape[1]) + 1)
        self.grams = [n for n in grams if self.size**n < 2**63]  # codes are 64-bit integers
        own = own_symbols(format, few)
        self.histograms = {n: histogram(few, own, n, self.size) for n in self.grams}
        self.known = {row.tobytes() for row in train.numpy()}
        spaced = format.form == "text" and not format.tokenizer
        self.words = words(format, format.texts(train)) if spaced else set()

    def score(self, x: Int[Tensor, "rows length"]) -> dict[str, Any]:
        x = ended(self.format, x)
        own = own_symbols(self.format, x)
        out: dict[str, Any] = {}
        for n in self.grams:
            out[f"ngram_distance_{n}"] = total_variation(self.histograms[n], histogram(x, own, n, self.size))
        rows = [row.tobytes() for row in x.numpy()]
        out["entropy"] = float(entropies(x, own, self.size).mean())
        out["unique"] = len(set(rows)) / len(rows)
        out["copies"] = sum(row in self.known for row in rows) / len(rows)
        if self.words:
            mine = words(self.format, self.format.texts(x))
            out["words_known"] = len(mine & self.words) / len(mine) if mine else 0.0
        if self.judge is not None:
            nats = -float(self.judge.log_probs(x)[own].sum()) / int(own.sum())
            out |= {"judge_bits": nats / log(2), "judge_perplexity": perplexity(nats)}
        return out


def perplexity(nats: float) -> float:
    """Of nats per symbol; infinite where a float holds no more."""
    return exp(nats) if nats < 709 else inf


def independent(format: Sequences, x: Int[Tensor, "rows length"], n: int, seed: int = 0) -> Int[Tensor, "n length"]:
    """n rows of independent symbols with the frequencies of x (of each place where sequences are padded)."""
    places = NoiseSource(seed, n).at("independent").uniform((x.shape[1],))
    if format.padded:
        return x.gather(0, (places * len(x)).long())
    return x.flatten()[(places * x.numel()).long()]
