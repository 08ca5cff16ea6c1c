"""The Gaussian variational autoencoder: z_0 ~ e(z | x) = N(m(x), v(x)), and x ~ p(x | z_0).

    -log p(x)  <=  E_e [ log e(z_0 | x)  +  bound(z_0)  -  log p(x | z_0) ]                          (eq:latent-elbo-bound)

where bound(z_0) is that of the latent process, to the last term -log p(z_0 | z_eps).  The mean of log e is minus the entropy
of the encoder, -1/2 sum log(2 pi e v): without it the sum bounds nothing, since a density can be made as large as one likes
by squeezing e to a point.  With it the terms of z_0 are KL(e || p), and the whole is -log p(x) where e is the posterior.

Jointly (`settled=False`) encoder, decoder and denoiser are trained on this one sum: e is drawn as m + sqrt(v) n, along which
gradients pass, so that everything has an unbiased gradient of the bound.

In two stages (`settled=True`) encoder and decoder come first, by E_e[-log p(x | z)] + kl KL(e || N(0, 1)), and stand still.
After that every channel of z is shifted and scaled to mean 0 and deviation 1 (`shift`, `scale`), which the entropy counts: e
is the density of the states that are noised.  The sum above is a bound all the same.

Joint training starts from a short stage of that kind too, in which the weight `kl` rises to 1.  A denoiser that predicts
velocity 0, as one does that has learned nothing, is exact for N(0, 1): where the stage ends, the joint bound begins.  From a
start at random the terms of z are the first to fall, to where z says nothing, and stay.

How much of x a latent coordinate k knows is told by

    information_k = 1/2 (log Var z_k - E log v_k)  >=  I(x; z_k)        (the entropy of a law is at most that of its normal)

near 0 it says nothing (posterior collapse); above `SHARP` its law has all but shrunk to a point (entropy collapse).
"""

from math import log, pi
from typing import Any

import torch
from torch import Tensor, nn

from unnoise.latent.autoencoder import Autoencoder, Rows, checked_output
from unnoise.latent.coders import FromLatent, ToLatent, coders_for, latent_shape
from unnoise.latent.data_laws import DataLaw, likelihood_of
from unnoise.latent.extras import Extra
from unnoise.laws import Law, Normal, sum_coordinates
from unnoise.noise import NoiseSource
from unnoise.predictions import Prediction
from unnoise.processes import Process
from unnoise.shapes import Tree
from unnoise.spaces import Space
from unnoise.tree import batch_size, map_leaves

LEAST, MOST = -20.0, 10.0  # of log-variances
IDLE, SHARP = 0.01, 7.0  # nats of information of a coordinate that has collapsed to the prior, or to a point
POINT = -18.0  # of a mean log-variance
MEASURED = 4096  # rows whose states are standardised


class NormalCode(Autoencoder):
    """`encoder(x)` returns [batch, *shape, 2], mean and log-variance; `decoder(z)` the numbers of the law of data."""

    shift: Tensor
    scale: Tensor

    def __init__(
        self,
        space: Space,
        shape: tuple[int, ...],
        encoder: nn.Module,
        decoder: nn.Module,
        data: DataLaw | None = None,
        settled: bool = False,
        kl: float = 0.1,
        cutoff: float | None = None,
        **first: Any,
    ):
        super().__init__(space, encoder, decoder, data, settled, **first)
        if kl < 0:
            raise ValueError(f"kl = {kl}: the weight of the divergence in the first stage is 0 or more")
        self.shape, self.kl, self.cutoff, self.done = tuple(shape), kl, cutoff, 0.0
        channels = (shape[0], *[1] * (len(shape) - 1)) if len(shape) == 3 else shape[-1:]
        self.register_buffer("shift", torch.zeros(channels))
        self.register_buffer("scale", torch.ones(channels))
        self.freeze()

    @classmethod
    def of(
        cls,
        space: Space,
        latent: int = 8,
        size: str = "tiny",
        patch: int = 2,
        data: DataLaw | None = None,
        settled: bool = False,
        extras: tuple[Extra, ...] = (),
        **options: Any,
    ) -> "NormalCode":
        """With networks that suit the space (`coders`): `latent` numbers at every place."""
        data = likelihood_of(space) if data is None else data
        coders = coders_for(space)(data=data, size=size, patch=patch)
        encoder = ToLatent(coders.encoder(2 * latent), coders.places, latent, 2)
        decoder, shape = FromLatent(coders.decoder(latent), coders.places), latent_shape(coders.places, latent)
        return cls(space, shape, encoder, decoder, data, settled, extras=extras, **options)

    def extra_repr(self) -> str:
        return f"{self.space} as {list(self.shape)} numbers, {'trained jointly' if self.trained else 'settled first'}"

    def posterior(self, x: Tree) -> tuple[Tensor, Tensor]:
        """Mean and log-variance of e, before anything is shifted or scaled."""
        out = checked_output(
            self.asked(x),
            (batch_size(x), *self.shape, 2),
            f"encoder of {type(self).__name__}",
            "mean and log-variance of a latent state",
        )
        out = out.to(torch.promote_types(out.dtype, torch.float32))
        return out[..., 0], out[..., 1].clamp(LEAST, MOST)

    def encode(self, x: Tree, noise: NoiseSource, condition: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        mean, log_variance = self.posterior(x)
        n = noise.normal(self.shape, mean.dtype).to(mean.device)
        z = (mean + (log_variance / 2).exp() * n - self.shift) / self.scale
        squeezed = log_variance.double() - 2 * self.scale.double().log()
        log_e = sum_coordinates(-0.5 * (n.double().square() + log(2 * pi) + squeezed))
        return z, {"entropy": log_e, "likelihood": self.unlikely(self.law(z, 0.0, None, None), x)}

    def law(self, z: Tree, t: float, process: Process | None, prediction: Prediction | None) -> Law:
        assert isinstance(z, Tensor)
        return self.decoded(z * self.scale + self.shift)

    # the first stage

    def first_loss(self, x: Tree, noise: NoiseSource) -> tuple[Tensor, Law]:
        mean, log_variance = self.posterior(x)
        std = (log_variance / 2).exp()
        law = self.decoded(mean + std * noise.normal(self.shape, mean.dtype).to(mean.device))
        divergence = Normal(mean, std).kl(Normal(torch.zeros_like(mean), torch.ones_like(std)))
        weight = self.kl + (1 - self.kl) * self.done if self.trained else self.kl
        return self.unlikely(law, x) + weight * divergence, law

    def begin(self, x: Tree, generator: torch.Generator) -> None:
        self.done = 0.0

    def after(self, step: int, done: float, generator: torch.Generator) -> None:
        self.done = done

    def finish(self, rows: Rows, seed: int) -> None:
        x = map_leaves(lambda leaf: leaf.to(self.scale.device), rows(MEASURED))
        mean, log_variance = self.posterior(x)
        z = mean + (log_variance / 2).exp() * NoiseSource(seed, len(mean), mean.device).normal(self.shape, mean.dtype)
        channel = 1 if len(self.shape) == 3 else z.ndim - 1
        each = z.double().movedim(channel, 0).flatten(1) if self.shape else z.double().reshape(1, -1)
        std = each.std(1)
        self.shift.copy_(each.mean(1).reshape(self.shift.shape))
        self.scale.copy_(torch.where(std > 1e-6, std, 1.0).reshape(self.scale.shape))

    # what to watch

    @torch.no_grad()
    def monitor(self, x: Tree, noise: NoiseSource) -> dict[str, float]:
        if batch_size(x) < 2:
            return {}
        mean, log_variance = (part.double().flatten(1) for part in self.posterior(x))
        spread = mean.var(0) + log_variance.exp().mean(0)
        information = (spread.log() - log_variance.mean(0)) / 2
        sharp = (information > SHARP) | (log_variance.mean(0) < POINT)
        terms = {name: float(value.mean()) for name, value in self.encode(x, noise, {})[1].items()}
        return {
            **terms,
            "coordinates": float(len(information)),
            "idle": float((information < IDLE).sum()),
            "sharp": float(sharp.sum()),
            "information": float(information.sum()),
        }

    def troubles(self, seen: dict[str, float]) -> dict[str, str]:
        if not seen:
            return {}
        count, idle, sharp = (int(seen[name]) for name in ("coordinates", "idle", "sharp"))
        found = {}
        if 2 * idle > count:
            found["posterior collapse"] = (
                f"{idle} of {count} latent coordinates tell less than {IDLE:g} nats of the data: take fewer, latent=..., "
                f"a longer first stage, or a weaker decoder"
            )
        if sharp:
            found["entropy collapse"] = (
                f"the law of {sharp} of {count} latent coordinates has shrunk to a point (variance below 1e-6 of its "
                f"spread): train on the bound, with the entropy in it; in two stages, with a larger kl"
            )
        return found
