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

Integrals over destinations are by nodes, of one or two numbers, or by `draws` destinations of the kernel's own, each with
the weight (total rate)/(draws J^(x, y)): then they are right in the mean, in any dimension.  What is drawn is a function of
the bits of the state, so that a row has the same in any batch.
"""

from math import log

import torch
from torch import Tensor

from unnoise.jump_laws import LOG_TWO_PI, IsotropicMixture, graded_nodes, log_normal, poisson_log_weights, squared
from unnoise.laws import LOG_ZERO, log_of
from unnoise.noise import NoiseSource
from unnoise.shapes import Float
from unnoise.spaces import JumpKernel
from unnoise.spaces.local import fingerprint

REACH = 9.0  # standard deviations of a throw that nodes cover
CHUNK = 2**19  # numbers held at once while a density is summed over throws


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
        draws: int = 0,
    ):
        self.forward, self.log_share, self.draws = forward, log_share.double(), draws
        self.centres, self.variances = centres.double(), variances.double()
        self.log_counts = poisson_log_weights(mean_count, terms)

    def _several(self, x: Tensor) -> Float[Tensor, "rows times d"]:
        """States by the rows of the kernel, in each of which there may be several."""
        return x.double().reshape(len(self.log_share), -1, self.centres.shape[2])

    def per_throws(self, more: int = 0) -> Float[Tensor, "rows k terms"]:
        """V_{k, n + more}."""
        n = torch.arange(self.log_counts.shape[1], dtype=torch.float64, device=self.centres.device) + more
        return (self.variances.unsqueeze(2) + n * self.forward.variance.reshape(-1, 1, 1)).clamp_min(1e-300)

    def log_terms(self, x: Float[Tensor, "rows times d"], more: int = 0, part: slice = slice(None)):
        """log P_n N(x; m_k, V_{k, n + more}), [rows, times, k, terms]; x and what is returned are of the rows in `part`."""
        variance = self.per_throws(more)[part]
        lead = self.log_counts[part].unsqueeze(1) - 0.5 * self.centres.shape[2] * (variance.log() + LOG_TWO_PI)
        square = squared(x.unsqueeze(2) - self.centres[part].unsqueeze(1))
        return torch.addcmul(lead.unsqueeze(1), square.unsqueeze(3), (-0.5 / variance).unsqueeze(1))

    def log_densities(self, x: Float[Tensor, "rows times d"]) -> Float[Tensor, "rows times k"]:
        """log p_k(x)."""
        rows, (_, k, terms) = len(x), self.per_throws().shape
        each = max(1, CHUNK // max(1, x.shape[1] * k * terms))
        parts = [slice(i, i + each) for i in range(0, rows, each)]
        return torch.cat([self.log_terms(x[part], part=part).logsumexp(3) for part in parts])

    def _change(self, x: Tensor, y: Tensor) -> Float[Tensor, "rows times k"]:
        """log c_k p_k(y)/p_k(x)."""
        here, there = self._several(x), self._several(y)
        once = here.shape[1] > 1 and bool((here == here[:, :1]).all())  # one state of each row, to many places
        return self.log_share.unsqueeze(1) + self.log_densities(there) - self.log_densities(here[:, :1] if once else here)

    def log_ratio(self, x: Tensor, y: Tensor) -> Float[Tensor, "batch"]:
        """log sum_k c_k p_k(y)/p_k(x): what a network has to say of the throws."""
        return self._change(x, y).logsumexp(2).flatten()

    def log_rate(self, x, y):
        return (self.forward.log_rate(y, x) + self.log_ratio(x, y)).clamp_min(LOG_ZERO)

    def _log_parts(self, x: Tensor) -> Float[Tensor, "batch k terms"]:
        """The log-rate of each component of the way back."""
        here = self._several(x)
        lead = self.log_share.unsqueeze(1) + log_of(self.forward.rate).reshape(-1, 1, 1) - self.log_densities(here)
        return (lead.unsqueeze(3) + self.log_terms(here, more=1)).flatten(0, 1)

    def total(self, x):
        return self._log_parts(x).flatten(1).logsumexp(1).exp()

    def law(self, x: Tensor) -> IsotropicMixture:
        """Where a throw leads back to."""
        parts, rows = self._log_parts(x), len(x)
        width = spread(self.forward.variance, rows)
        before = spread(self.per_throws(), rows)
        share = before / (before + width.reshape(-1, 1, 1))
        centres, flat = spread(self.centres, rows).unsqueeze(2), x.double().reshape(rows, 1, 1, -1)
        mean = centres + share.unsqueeze(3) * (flat - centres)
        variance = (width.reshape(-1, 1, 1) * share).flatten(1)
        return IsotropicMixture(parts.flatten(1), mean.flatten(1, 2), variance, tuple(x.shape[1:]), x.dtype)

    def nodes(self, x):
        y, log_weight = self._drawn(x) if self.draws else self._graded(x)
        return y.reshape(len(x), -1, *x.shape[1:]).to(x.dtype), log_weight

    def _graded(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Around the last place before the only throw of each centre, the narrowest part; each centre integrates its own."""
        law, rows = self.law(x), len(x)
        count, k, d = law.mean.shape[1], self.centres.shape[1], law.mean.shape[2]
        width = spread(self.forward.variance, rows).sqrt()
        flat, parts = x.double().reshape(rows, -1), []
        for i in range(0, count, count // k):
            centre, narrow = law.mean[:, i], law.variance[:, i].sqrt()
            parts.append(graded_nodes(centre, narrow, squared(flat - centre).sqrt() + REACH * width, d))
        y, log_weight = (torch.cat([part[j] for part in parts], 1) for j in range(2))
        if k == 1:
            return y, log_weight
        n = y.shape[1]
        share = self._change(flat.repeat_interleave(n, 0), y.flatten(0, 1)).log_softmax(2).reshape(rows, n, k)
        own = torch.arange(k, device=y.device).repeat_interleave(n // k).reshape(1, n, 1).expand(rows, n, 1)
        return y, log_weight + share.gather(2, own).squeeze(2)

    def _drawn(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            law, noise = self.law(x), NoiseSource(0, fingerprint(x)).at("destinations")
            y = torch.stack([law.draw(noise.at(i)) for i in range(self.draws)], 1)
        log_rate = self.log_rate(x.repeat_interleave(self.draws, 0), y.flatten(0, 1)).reshape(len(x), -1)
        return y, self.total(x).log().unsqueeze(1) - log(self.draws) - log_rate

    def draw(self, x: Tensor, noise: NoiseSource) -> Tensor:
        return self.law(x).draw(noise)
