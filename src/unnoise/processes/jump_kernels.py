"""Normal throws, and their way back.

Forward a state is thrown at the rate l by a normal step of the variance w in every direction,

    J(x, y) = l N(y; x, w).

Backwards under a density p that is a mixture over centres k and numbers of throws n, p_k = sum_n P_n N(m_k, V_kn) with
V_k,n+1 = V_kn + w and P_n = Poisson(n; L), where the centre k has the weight c_k given x,

    J^(x, y) = l N(x; y, w) sum_k c_k p_k(y)/p_k(x),                                            (eq:reversed-generator)

which is again a mixture of normal laws, with r = V_n/V_{n+1}:

    N(y; m, V_n) N(x; y, w) = N(x; m, V_{n+1}) N(y; m + r (x - m), r w),

    total rate      l sum_k c_k sum_n P_n N(x; m_k, V_k,n+1)/p_k(x) = (l/L) E[number of throws | x],

since P_n L/(n + 1) = P_{n+1}: known without an integral, and where a throw leads back to is drawn exactly.  One centre, x_0,
is the reverse process conditioned on the data; several are what a network or an exactly solvable problem says of it.
"""

import torch
from torch import Tensor

from unnoise.jump_laws import IsotropicMixture, graded_nodes, log_normal, poisson_log_weights, squared
from unnoise.laws import LOG_ZERO, log_of
from unnoise.noise import NoiseSource
from unnoise.shapes import Float
from unnoise.spaces import JumpKernel

REACH = 9.0  # standard deviations of a throw that nodes cover


def spread(value: Tensor, rows: int) -> Tensor:
    """What is known of each row, for a batch in which every row stands several times over."""
    return value if len(value) == rows else value.repeat_interleave(rows // len(value), 0)


class NormalJumps(JumpKernel):
    """l N(y; x, w): rate and variance [batch]."""

    known_total = True

    def __init__(self, rate: Float[Tensor, "batch"], variance: Float[Tensor, "batch"]):
        self.rate, self.variance = rate.double(), variance.double()

    def log_rate(self, x, y):
        gap = (y.double() - x.double()).reshape(len(x), -1)
        rate, variance = spread(self.rate, len(x)), spread(self.variance, len(x))
        return (log_of(rate) + log_normal(squared(gap), variance, gap.shape[1])).clamp_min(LOG_ZERO)

    def nodes(self, x):
        flat, width = x.double().reshape(len(x), -1), spread(self.variance, len(x)).sqrt()
        y, log_weight = graded_nodes(flat, 0.5 * width, REACH * width, flat.shape[1])
        return y.reshape(len(x), -1, *x.shape[1:]).to(x.dtype), log_weight

    def total(self, x):
        return spread(self.rate, len(x))

    def draw(self, x, noise):
        width = spread(self.variance, len(x)).sqrt().reshape(-1, *[1] * (x.ndim - 1))
        return x + (width * noise.normal(tuple(x.shape[1:])).to(x.device)).to(x.dtype)


class ReturnJumps(JumpKernel):
    """The way back of normal throws under a mixture of centres.

    `centres` [batch, k, d] and `variances` [batch, k] are m_k and V_k0; `log_share` [batch, k] is log c_k, the weights given
    the states that the kernel is asked at; `mean_count` [batch] is L.
    """

    known_total = True

    def __init__(
        self,
        forward: NormalJumps,
        centres: Float[Tensor, "batch k d"],
        variances: Float[Tensor, "batch k"],
        log_share: Float[Tensor, "batch k"],
        mean_count: Float[Tensor, "batch"],
        terms: int,
    ):
        self.forward, self.log_share = forward, log_share.double()
        self.centres, self.variances = centres.double(), variances.double()
        self.log_counts = poisson_log_weights(mean_count, terms)

    def _log_cloud(self, x: Tensor, more: int = 0) -> Float[Tensor, "batch k terms"]:
        """log P_n N(x; m_k, V_{k, n + more})."""
        rows, flat = len(x), x.double().reshape(len(x), 1, -1)
        n = torch.arange(self.log_counts.shape[1], dtype=torch.float64, device=x.device) + more
        throws = n * spread(self.forward.variance, rows).unsqueeze(1)
        variance = spread(self.variances, rows).unsqueeze(2) + throws.unsqueeze(1)
        square = squared(flat - spread(self.centres, rows)).unsqueeze(2)
        return spread(self.log_counts, rows).unsqueeze(1) + log_normal(square, variance, flat.shape[2])

    def log_ratio(self, x: Tensor, y: Tensor) -> Float[Tensor, "batch"]:
        """log sum_k c_k p_k(y)/p_k(x): what a network has to say of the throws."""
        times, first = len(x) // len(self.log_share), x[:: len(x) // len(self.log_share)]
        once = times > 1 and torch.equal(first.repeat_interleave(times, 0), x)  # one state of each row, to many places
        here = self._log_cloud(first if once else x).logsumexp(2)
        change = self._log_cloud(y).logsumexp(2) - (here.repeat_interleave(times, 0) if once else here)
        return (spread(self.log_share, len(x)) + change).logsumexp(1)

    def log_rate(self, x, y):
        return (self.forward.log_rate(y, x) + self.log_ratio(x, y)).clamp_min(LOG_ZERO)

    def _log_parts(self, x: Tensor) -> Float[Tensor, "batch k terms"]:
        """The log-rate of each component of the way back."""
        lead = spread(self.log_share, len(x)) + log_of(spread(self.forward.rate, len(x))).unsqueeze(1)
        return (lead - self._log_cloud(x).logsumexp(2)).unsqueeze(2) + self._log_cloud(x, more=1)

    def total(self, x):
        return self._log_parts(x).flatten(1).logsumexp(1).exp()

    def law(self, x: Tensor) -> IsotropicMixture:
        """Where a throw leads back to."""
        parts, rows = self._log_parts(x), len(x)
        n = torch.arange(parts.shape[2], dtype=torch.float64, device=x.device)
        width = spread(self.forward.variance, rows)
        before = spread(self.variances, rows).unsqueeze(2) + (n * width.unsqueeze(1)).unsqueeze(1)
        share = before / (before + width.reshape(-1, 1, 1))
        centres, flat = spread(self.centres, rows).unsqueeze(2), x.double().reshape(rows, 1, 1, -1)
        mean = centres + share.unsqueeze(3) * (flat - centres)
        variance = (width.reshape(-1, 1, 1) * share).flatten(1)
        return IsotropicMixture(parts.flatten(1), mean.flatten(1, 2), variance, tuple(x.shape[1:]), x.dtype)

    def nodes(self, x):
        """Around the last place before the only throw of each centre, the narrowest part; each centre integrates its own."""
        law, rows = self.law(x), len(x)
        count, k, d = law.mean.shape[1], self.centres.shape[1], law.mean.shape[2]
        terms = count // k
        width = spread(self.forward.variance, rows).sqrt()
        flat, parts = x.double().reshape(rows, -1), []
        for i in range(k):
            centre, narrow = law.mean[:, i * terms], law.variance[:, i * terms].sqrt()
            reach = squared(flat - centre).sqrt() + REACH * width
            y, log_weight = graded_nodes(centre, narrow, reach, d)
            parts.append((y, log_weight + self._share(x, y, i) if k > 1 else log_weight))
        y, log_weight = (torch.cat([part[j] for part in parts], 1) for j in range(2))
        return y.reshape(rows, -1, *x.shape[1:]).to(x.dtype), log_weight

    def _share(self, x: Tensor, y: Tensor, i: int) -> Tensor:
        """log of the share that centre i has in the rate to y."""
        n = y.shape[1]
        here, there = x.repeat_interleave(n, 0), y.reshape(-1, *x.shape[1:])
        change = self._log_cloud(there).logsumexp(2) - self._log_cloud(here).logsumexp(2)
        return (spread(self.log_share, len(here)) + change).log_softmax(1)[:, i].reshape(len(x), n)

    def draw(self, x: Tensor, noise: NoiseSource) -> Tensor:
        return self.law(x).draw(noise)
