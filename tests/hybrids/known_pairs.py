"""Networks for tokens with vectors beside them whose answers are known: exact ones by enumeration, and random ones."""

import torch
from torch import nn

import unnoise as un
from unnoise import hybrids


def law(size: int, length: int, seed: int = 0) -> torch.Tensor:
    """A law over all texts, with tokens that depend on each other."""
    logits = torch.randn(size**length, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return logits.softmax(0)


class Known(nn.Module):
    """log p(x | x_t, z_t) over all texts, from what is shown."""

    def __init__(self, code, process, q):
        super().__init__()
        self.code, self.schedule, self.log_q = code, process.leaves["vectors"].schedule, q.log()
        self.texts = code.space.states()
        self.z0 = code.vectors_of(self.texts).detach()

    def evidence(self, x, t):
        """Of the token and of the vector of each position, for every text: two of [batch, texts, length]."""
        tokens, z = x["tokens"].unsqueeze(1), x["vectors"].unsqueeze(1)
        fits = torch.where((tokens == self.texts) | (tokens == self.code.space.size), 0.0, -torch.inf)
        alpha, sigma = (part(t).reshape(-1, 1, 1) for part in (self.schedule.alpha, self.schedule.sigma))
        return fits, -(z - alpha.unsqueeze(-1) * self.z0).square().sum(-1) / (2 * sigma.square())

    def by_token(self, log_w):
        """log of the sums over texts, by the token of each position: [batch, texts, length] -> [batch, length, size]."""
        parts = [
            log_w.masked_fill(self.texts != v, -torch.inf).logsumexp(1).clamp_min(-1e4) for v in range(self.code.space.size)
        ]
        return torch.stack(parts, -1)


class KnownPaired(Known):
    """Leave-one-out logits of paired tokens: each from the tokens and the shown vectors of the others."""

    def forward(self, x, t):
        fits, said = self.evidence(x, t)
        said = torch.where((x["tokens"] == self.code.space.size).unsqueeze(1), said, 0.0)
        own = (fits + said).unbind(-1)
        others = [sum((part for j, part in enumerate(own) if j != k), 0 * said[..., k]) for k in range(len(own))]
        return self.by_token(self.log_q[:, None] + torch.stack(others, -1))


class KnownTogether(Known):
    """Laws of tokens and means of vectors given all."""

    def forward(self, x, t):
        log_w = self.log_q + sum(part.sum(-1) for part in self.evidence(x, t))
        w = log_w.softmax(1)
        logits = self.by_token(log_w.unsqueeze(-1).expand(-1, -1, self.texts.shape[1]))
        return {"tokens": logits, "vectors": torch.einsum("bn,nld->bld", w, self.z0)}


class Wrong(nn.Module):
    """Random answers, of the state and the time."""

    def __init__(self, code, seed=0, spread=1.0, answers=False):
        super().__init__()
        self.shape, self.size, self.width, self.answers = code.space.shape, code.space.size, code.width, answers
        d = code.space.dimension
        given, asked = d * (self.size + 1 + self.width) + 1, d * (self.size + (self.width if answers else 0))
        generator = torch.Generator().manual_seed(seed)
        self.weight = spread * torch.randn(asked, given, generator=generator, dtype=torch.float64)

    def forward(self, x, t):
        tokens = torch.nn.functional.one_hot(x["tokens"], self.size + 1).double().flatten(1)
        out = torch.cat([tokens, torch.tanh(x["vectors"]).flatten(1), t[:, None]], 1) @ self.weight.T
        d = len(x["tokens"][0])
        logits = out[:, : d * self.size].reshape(-1, *self.shape, self.size)
        if not self.answers:
            return logits
        return {"tokens": logits, "vectors": out[:, d * self.size :].reshape(-1, *self.shape, self.width)}


def paired(size, length, table="bits", cutoff=1e-3, **schedules):
    """A code of paired tokens with one number each, and its process."""
    space = un.Finite(size, (length,))
    table = un.codes.bits(size, (length,)) if table == "bits" else un.codes.Codebook(space, torch.tensor(table).double())
    code = hybrids.Paired(table.double(), cutoff=cutoff)
    return code, hybrids.beside(space, code.width, **schedules)


def swapped(x):
    """The vectors -1 and 1 of two tokens, each beside the other."""
    return (2.0 * x.flip(1) - 1).double().unsqueeze(-1)
