"""The vector-quantised autoencoder: every place of a latent state is one of `codes` categories.

    h = encoder(x) [places, width],    z^p = argmin_k |h^p - e_k|^2,    x ~ p(x | e_z)

    -log p(x)  <=  bound(z(x))  -  log p(x | e_{z(x)})

The encoder is a map, z is a category: there is no entropy, and the bound is that of the latent process, masking or uniform
noise over codes, and the decoder's surprise.  It is exact in what it says of x: nothing is relaxed.

It is always trained in two stages.  The indices jump as the encoder moves, so that the bound has no gradient by the encoder;
what passes through them is copied from the decoder (straight-through), the gradient of another function.  It serves to find
an autoencoder, not to descend the bound; and codes that move under the denoiser would change what it has to learn.

The first stage minimises, with [.] held constant,

    -log p(x | h + [e_z - h])  +  commitment |h - [e_z]|^2      (and |[h] - e_z|^2 where codes move by their gradient)

and codes follow the mean of what they stand for (`codebook="ema"`, rate `DECAY`).  A code that stands for less than `LOW` of
its even share is put where a random encoding lies: it was dead.
"""

from typing import Any

import torch
from torch import Tensor, nn

from unnoise.latent.autoencoder import Autoencoder, Rows, checked_output
from unnoise.latent.coders import coders_for
from unnoise.latent.data_laws import DataLaw, likelihood_of
from unnoise.latent.extras import Extra
from unnoise.laws import Law
from unnoise.noise import NoiseSource
from unnoise.predictions import Prediction
from unnoise.processes import Process
from unnoise.shapes import Float, Int, Tree
from unnoise.spaces import Space
from unnoise.tree import batch_size, map_leaves

DECAY, LOW = 0.98, 0.05
EVERY, SETTLES = 25, 0.8  # updates between looks at dead codes; the share of the stage after which none is moved
ENOUGH = 4  # encodings for each code, from which it is told which are dead
MEASURED = 4096  # rows by which codes are counted when the stage is over
SOUGHT = 8192  # encodings among which codes begin
UPDATED = ("ema", "gradient")


class QuantisedCode(Autoencoder):
    """`encoder(x)` returns [batch, places, width]; `decoder(vectors)` the numbers of the law of data."""

    vectors: Tensor
    used: Tensor

    def __init__(
        self,
        space: Space,
        places: int,
        encoder: nn.Module,
        decoder: nn.Module,
        vectors: Float[Tensor, "codes width"],
        data: DataLaw | None = None,
        commitment: float = 0.25,
        codebook: str = "ema",
        **first: Any,
    ):
        super().__init__(space, encoder, decoder, data, settled=True, **first)
        if codebook not in UPDATED:
            raise ValueError(f"codebook = {codebook!r}: choose from {', '.join(UPDATED)}")
        if vectors.ndim != 2 or len(vectors) < 2:
            raise ValueError(f"vectors are {tuple(vectors.shape)}: pass [codes, width], two codes at least")
        self.shape, self.commitment, self.codebook = (places,), commitment, codebook
        self.vectors = nn.Parameter(vectors.clone())
        self.register_buffer("used", torch.ones(len(vectors)))  # encodings that each code stood for when it was settled
        self.freeze()

    @classmethod
    def of(
        cls,
        space: Space,
        codes: int = 256,
        width: int = 8,
        size: str = "tiny",
        patch: int = 2,
        places: int = 8,
        data: DataLaw | None = None,
        extras: tuple[Extra, ...] = (),
        **options: Any,
    ) -> "QuantisedCode":
        """With networks that suit the space (`coders`); `places` where the data do not say how many."""
        data = likelihood_of(space) if data is None else data
        coders = coders_for(space)(data=data, size=size, patch=patch, wanted=places)
        count = int(torch.Size(coders.places).numel())
        vectors = torch.randn(codes, width)
        encoder, decoder = coders.encoder(width), coders.decoder(width)
        return cls(space, count, encoder, decoder, vectors, data, extras=extras, **options)

    @property
    def codes(self) -> int:
        return len(self.vectors)

    def extra_repr(self) -> str:
        return f"{self.space} as {self.shape[0]} of {self.codes} codes"

    def encoded(self, x: Tree) -> Float[Tensor, "batch places width"]:
        who, wanted = f"encoder of {type(self).__name__}", (batch_size(x), *self.shape, self.vectors.shape[1])
        out = checked_output(self.asked(x), wanted, who, "a vector for every place")
        return out.to(self.vectors.dtype)

    def nearest(self, h: Float[Tensor, "batch places width"]) -> Int[Tensor, "batch places"]:
        """|h|^2 is the same for all codes."""
        with torch.autocast(h.device.type, enabled=False):
            return (self.vectors.square().sum(1) - 2 * h @ self.vectors.T).argmin(-1)

    def encode(self, x: Tree, noise: NoiseSource, condition: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        z = self.nearest(self.encoded(x))
        return z, {"likelihood": self.unlikely(self.law(z, 0.0, None, None), x)}

    def law(self, z: Tree, t: float, process: Process | None, prediction: Prediction | None) -> Law:
        assert isinstance(z, Tensor)
        return self.decoded(self.vectors[z])

    # the first stage

    def prepare(self, rows: Rows, seconds: float | None, device: torch.device, seed: int) -> bool:
        places = self.shape[0]
        found = batch_size(rows(-(-self.codes // places)))
        if self.codes > found * places:
            raise ValueError(
                f"a codebook of {self.codes} codes is larger than the data: {found} rows of {places} places have no more "
                f"than {found * places} things to stand for: take {max(2, found * places // ENOUGH)} at most, codes=..."
            )
        return super().prepare(rows, seconds, device, seed)

    @torch.no_grad()
    def begin(self, x: Tree, generator: torch.Generator) -> None:
        """Codes are put where encodings lie."""
        h = self.encoded(x).flatten(0, 1)
        apart = torch.randn(self.vectors.shape, generator=generator).to(h)
        self.vectors.copy_(spread_out(h, self.codes, generator) + 1e-3 * h.std() * apart)
        if self.codebook == "ema":
            self.vectors.requires_grad_(False)
        self.counts, self.sums = torch.ones(self.codes, device=h.device), self.vectors.detach().clone()
        self.last = h

    def first_loss(self, x: Tree, noise: NoiseSource) -> tuple[Tensor, Law]:
        h = self.encoded(x)
        z = self.nearest(h.detach())
        e = self.vectors[z]
        law = self.decoded(h + (e - h).detach())
        loss = self.unlikely(law, x) + self.commitment * (h - e.detach()).square().sum((1, 2))
        if self.codebook == "gradient":
            loss = loss + (h.detach() - e).square().sum((1, 2))
        self.last, self.chosen = h.detach().flatten(0, 1), z.flatten()
        return loss, law

    @torch.no_grad()
    def after(self, step: int, done: float, generator: torch.Generator) -> None:
        found = torch.zeros_like(self.counts).index_add_(0, self.chosen, torch.ones_like(self.last[:, 0]))
        self.counts.lerp_(found, 1 - DECAY)
        if self.codebook == "ema":
            sums = torch.zeros_like(self.sums).index_add_(0, self.chosen, self.last)
            self.sums.lerp_(sums, 1 - DECAY)
            self.vectors.copy_(self.sums / self.counts.clamp_min(1e-6).unsqueeze(1))
        if step % EVERY == 0 and done < SETTLES:
            share = len(self.last) / self.codes
            dead = self.counts < LOW * share
            other = self.last[torch.randint(len(self.last), (self.codes,), generator=generator).to(self.last.device)]
            self.vectors.copy_(torch.where(dead.unsqueeze(1), other, self.vectors))
            self.counts.copy_(torch.where(dead, share, self.counts))
            self.sums.copy_(self.vectors * self.counts.unsqueeze(1))

    def finish(self, rows: Rows, seed: int) -> None:
        x = map_leaves(lambda leaf: leaf.to(self.vectors.device), rows(MEASURED))
        self.used.copy_(torch.bincount(self.nearest(self.encoded(x)).flatten(), minlength=self.codes))
        for name in ("last", "chosen", "counts", "sums"):
            delattr(self, name)

    # what to watch

    @torch.no_grad()
    def monitor(self, x: Tree, noise: NoiseSource) -> dict[str, float]:
        share = self.used.double() / self.used.double().sum()
        entropy = -(share * share.clamp_min(1e-30).log()).sum()
        return {
            "likelihood": float(self.encode(x, noise, {})[1]["likelihood"].mean()),
            "codes": float(self.codes),
            "dead": float((self.used == 0).sum()),
            "counted": float(self.used.sum()),
            "perplexity": float(entropy.exp()),
        }

    def troubles(self, seen: dict[str, float]) -> dict[str, str]:
        count, dead = int(seen["codes"]), int(seen["dead"])
        if 2 * dead <= count or seen["counted"] < ENOUGH * count:
            return {}
        return {
            "dead codes": f"{dead} of {count} codes stand for none of {int(seen['counted'])} places that were counted: take "
            f"fewer, codes=..., or a longer first stage"
        }


def spread_out(h: Float[Tensor, "encodings width"], count: int, generator: torch.Generator) -> Float[Tensor, "count width"]:
    """Encodings far from one another: each is drawn in proportion to its squared distance to those before (k-means++)."""
    some = h[torch.randint(len(h), (min(len(h), SOUGHT),), generator=generator).to(h.device)].cpu()
    chosen, least = [some[0]], (some - some[0]).square().sum(1)
    while len(chosen) < count:
        total = float(least.sum())
        place = torch.multinomial(least if total > 0 else torch.ones_like(least), 1, generator=generator)
        chosen.append(some[place[0]])
        least = torch.minimum(least, (some - chosen[-1]).square().sum(1))
    return torch.stack(chosen).to(h)
