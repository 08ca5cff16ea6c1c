"""Sequences of categories: a transformer that sees all positions at once.

Inputs are `size + extra` tokens, MASK (index `size`) among them; outputs are `size` logits per position, never one for MASK.
Positions enter by rotation, which knows differences only: then a shifted sequence has shifted logits (up to its ends), as
suits windows cut anywhere from a long text, but where every token is MASK no position can be told from another.  With
`numbers` each position is so many numbers in place of a token, such as those of a code.  With `vectors` it is a token and
so many numbers beside it, x = {"tokens", "vectors"}, and the time is that of the numbers; with `answers` it also says
numbers of each position, of the same names.  With
`length` each position also has a learned vector of its own, as suits sequences that have a beginning.  Before attention each
layer sums over `reach` neighbours on either side, which attention would have to learn to find: letters are learned sooner.

A condition that is a sequence itself (`ConditionInput(sequence=True)`), such as a text to translate, stands before the
tokens and is attended to like them, layer by layer; nothing is predicted of it.

`time=False` leaves time out: what is known of masked data does not depend on it.

In place of tokens it can be shown mixtures of them (`mixtures`): `forward(x, t, mixture=weights)`, where x is left aside.

`causal=True` is an autoregressive model of the same size, a judge for samples.  The input is shifted by one (a token of its
own, index `size`, in front), so `forward(x)[:, k]` are the logits of x^k given x^1 ... x^{k-1}, in the layout of x, and
`log_prob(x)` is the exact log-likelihood in nats.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unnoise.checks import leaf_time
from unnoise.networks.base import register, require
from unnoise.networks.blocks import Block, RMSNorm, rotations
from unnoise.networks.embedding import Modulation, TimeEmbedding, modulate, zeroed
from unnoise.networks.mixtures import flattened, mixed_tokens
from unnoise.networks.told import conditions_of, hear, source_tokens, told_embedding
from unnoise.predictions import LinearHead
from unnoise.shapes import AnyState, Float, Int, Tree


@dataclass(kw_only=True)
class SequenceTransformerConfig:
    size: int  # categories, without MASK
    extra: int = 1  # further tokens of the input, after the categories
    numbers: int = 0  # for each position, in place of a token
    vectors: int = 0  # numbers of each position beside its token
    answers: int = 0  # numbers that it says of each position beside the logits
    length: int = 0  # positions with a learned vector each; 0: rotation alone
    width: int = 512
    layers: int = 8
    heads: int = 8
    reach: int = 3  # neighbours on either side that each layer sums over before attention (causal: twice as many before)
    time: bool = True
    tied: bool = False  # whether the logits use the token embedding
    causal: bool = False
    self_condition: bool = False
    conditions: Sequence[Any] = ()  # that it is told beside x and t: `ConditionInput`, or dicts of its fields

    def __post_init__(self) -> None:
        self.conditions = conditions_of(self.conditions)
        require(
            self.width % (2 * self.heads) == 0,
            f"width = {self.width} with {self.heads} heads of even width: choose a multiple of {2 * self.heads}",
        )
        require(
            not (self.causal and any(one.sequence for one in self.conditions)),
            "causal = True takes no condition that is a sequence: put it before the text",
        )
        require(not (self.causal and self.self_condition), "causal = True leaves no use for a previous estimate: drop one")
        require(
            not self.numbers or not (self.causal or self.tied),
            "numbers are no tokens: leave out causal and tied",
        )
        require(
            not (self.vectors or self.answers) or not (self.causal or self.numbers),
            "vectors stand beside tokens, at one noise level: leave out causal and numbers",
        )
        require(not self.causal or self.extra >= 1, "causal = True needs a token to begin with: extra = 1")


@register(SequenceTransformerConfig)
class SequenceTransformer(nn.Module):
    """`forward(x, t, previous=None, mixture=None, **condition)`; `previous` are probabilities of x_0 [..., size], `mixture`
    weights of the tokens that are shown in place of x.  `forward` is `head(features)`."""

    def __init__(self, config: SequenceTransformerConfig):
        super().__init__()
        self.config = config
        width, timed = config.width, config.time and not config.causal
        self.embedding = (
            nn.Linear(config.numbers, width) if config.numbers else nn.Embedding(config.size + config.extra, width)
        )
        nn.init.normal_(self.embedding.weight, std=0.5)
        self.positions = nn.Parameter(0.5 * torch.randn(config.length, width)) if config.length else None
        self.estimated = config.numbers or config.size  # entries of an estimate of x_0, per position
        self.previous = nn.Linear(self.estimated, width, bias=False) if config.self_condition else None
        self.time = TimeEmbedding(width) if timed else None
        self.told = told_embedding([one for one in config.conditions if not one.sequence], width)
        self.source = source_tokens(config.conditions, width)
        self.blocks = nn.ModuleList(
            Block(width, config.heads, config.layers, width if timed else 0, config.reach) for _ in range(config.layers)
        )
        self.norm, self.modulation = RMSNorm(width), Modulation(width, width, 2) if timed else None
        self.project = zeroed(nn.Linear(width, width, bias=False)) if config.tied else None
        self.out = None if config.tied else zeroed(nn.Linear(width, config.size))
        self.beside = nn.Linear(config.vectors, width) if config.vectors else None
        self.answer = zeroed(nn.Linear(width, config.answers)) if config.answers else None

    def _tokens(self, x: Tensor, previous: Tensor | None, mixture: Any) -> Float[Tensor, "batch length width"]:
        if self.config.causal:
            x = F.pad(x, (1, 0), value=self.config.size)[:, :-1]
            if mixture is not None:
                raise ValueError("an autoregressive network is shown tokens, no mixture of them: build it with causal=False")
        h = self.embedding(x) if mixture is None else mixed_tokens(self.embedding, mixture, self.config.size)
        if self.positions is not None:
            if x.shape[1] > self.config.length:
                raise ValueError(
                    f"a sequence of {x.shape[1]} is longer than the {self.config.length} positions of this network: "
                    f"pass shorter ones, or build it with length={x.shape[1]}"
                )
            h = h + self.positions[: x.shape[1]]
        if self.previous is not None:
            given = h.new_zeros(1, 1, self.estimated) if previous is None else previous.to(h.dtype)
            h = h + self.previous(given.reshape(-1, given.shape[-2], self.estimated))
        elif previous is not None:
            raise ValueError("this network takes no previous estimate: build it with self_condition=True")
        return h

    def features(
        self, x: AnyState, t: AnyState | None = None, previous: AnyState | None = None, mixture: Any = None, **condition: Any
    ) -> Float[Tensor, "batch *shape width"]:
        vectors: AnyState = None
        if self.beside is not None:
            x, vectors = x["tokens"], x["vectors"]
            t, previous = leaf_time(t, "vectors"), leaf_time(previous, "tokens")
        shape = x.shape[:-1] if self.config.numbers else x.shape
        flat = x.reshape(len(x), shape[1:].numel(), *x.shape[len(shape) :])
        mixture = mixture if mixture is None else flattened(mixture, len(x))
        h = self._tokens(flat, previous if previous is None else previous.reshape(*flat.shape[:2], -1), mixture)
        if self.beside is not None:
            h = h + self.beside(vectors.to(h.dtype)).reshape(h.shape)
        if self.time is not None and t is None:
            raise ValueError("t is missing: this network is told the time (build it with time=False to leave it out)")
        sources = set() if self.source is None else {one.name for one in self.source.sources}
        told, c = hear(self.told, {name: value for name, value in condition.items() if name not in sources}, len(x)), None
        if self.time is not None and t is not None:
            c = self.time(t, told).unsqueeze(1)
        elif told is not None:
            h = h + told.unsqueeze(1)
        before = 0
        if self.source is not None:
            tokens = self.source(condition, len(x)).to(h.dtype)
            before, h = tokens.shape[1], torch.cat([tokens, h], 1)
        by = rotations(before + flat.shape[1], self.config.width // self.config.heads, x.device)
        by = (by[0].to(h.dtype), by[1].to(h.dtype))
        for block in self.blocks:
            h = block(h, c, by=by, causal=self.config.causal)
        h = self.norm(h[:, before:])
        h = h if self.modulation is None else modulate(h, *self.modulation(c))
        h = h if self.project is None else self.project(h)
        return h.reshape(*shape, self.config.width)

    @property
    def head(self) -> nn.Linear | LinearHead:
        """Features to logits: linear, and known to be."""
        return LinearHead(self.embedding.weight[: self.config.size]) if self.out is None else self.out

    def forward(
        self, x: AnyState, t: AnyState | None = None, previous: AnyState | None = None, mixture: Any = None, **condition: Any
    ) -> Tree:
        h = self.features(x, t, previous, mixture, **condition)
        return self.head(h) if self.answer is None else {"tokens": self.head(h), "vectors": self.answer(h)}

    def log_prob(self, x: Int[Tensor, "batch *shape"]) -> Float[Tensor, "batch"]:
        """log p(x) of an autoregressive network."""
        return self.log_probs(x).flatten(1).sum(1)

    def log_probs(self, x: Int[Tensor, "batch *shape"]) -> Float[Tensor, "batch *shape"]:
        """Of an autoregressive network, log p of each symbol given those before it."""
        if not self.config.causal:
            raise ValueError("log_prob is the likelihood of an autoregressive network: build it with causal=True")
        logits = self(x).flatten(0, -2).float()
        return -F.cross_entropy(logits, x.flatten(), reduction="none").reshape(x.shape)
