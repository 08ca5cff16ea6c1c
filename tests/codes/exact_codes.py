"""Exact networks of enumerable laws under a codebook, and random ones."""

import torch


class ExactPair(torch.nn.Module):
    """Leave-one-out logits of two positions with the joint law q [K, K]: log sum_b q(a, b) q(z' | b) of the other."""

    def __init__(self, code, process, q):
        super().__init__()
        self.code, self.process, self.log_q = code, [process], q.double().log()

    def forward(self, x, t):
        evidence = self.code.evidence(x, t, self.process[0])
        first = (self.log_q + evidence[:, None, 1, :]).logsumexp(2)
        second = (self.log_q.T + evidence[:, None, 0, :]).logsumexp(2)
        return torch.stack([first, second], 1)

    def log_joint(self, z, t):
        """log q(x_1, x_2, z_t) up to what is free of x: [batch, K, K]."""
        evidence = self.code.evidence(z, t, self.process[0])
        return self.log_q + evidence[:, 0, :, None] + evidence[:, 1, None, :]


class Told(torch.nn.Module):
    """Random leave-one-out logits that depend on the state, the time, and an estimate of the states where one is shown."""

    def __init__(self, code, seed=0, spread=1.0, shown=False):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        d, out = torch.Size(code.shape).numel(), code.space.dimension * code.space.size
        self.shown, self.shape = shown, (*code.space.shape, code.space.size)
        self.weight = spread * torch.randn(out, d * (1 + shown) + 1, generator=generator, dtype=torch.float64)

    def forward(self, x, t, previous=None):
        seen = [torch.tanh(x.flatten(1)), t[:, None].to(x.dtype)]
        if self.shown:
            seen.append(torch.zeros_like(seen[0]) if previous is None else previous.flatten(1))
        return (torch.cat(seen, 1) @ self.weight.T.to(x.dtype)).reshape(len(x), *self.shape)
