"""What the codes with an encoder and a decoder share: the law of data, what they are asked for, and the first stage.

In two stages encoder and decoder are settled by themselves, before the denoiser's first update, by

    -log p(x | z)  +  what the code asks besides (`first_loss`)  +  further losses on the decoder's mean (`extras`),

and stand still from then on.  Which losses those are is free: -log p(x) is bounded by the terms of the code and the latent
bound whatever encoder and decoder are, and this is what training and evaluation report.
"""

from collections.abc import Callable
from contextlib import nullcontext
from math import cos, pi
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from unnoise.checks import may_read
from unnoise.codes import Code
from unnoise.latent.data_laws import DataLaw, likelihood_of
from unnoise.latent.extras import Extra
from unnoise.laws import Law
from unnoise.noise import NoiseSource
from unnoise.shapes import Tree
from unnoise.spaces import Space
from unnoise.tree import batch_size, first_leaf, map_leaves
from unnoise.tree import rows as some_rows

Rows = Callable[[int | None], Tree]
STEPS, WARM, LOOK = 1000, 50, 25  # of the first stage: updates where no time is known, with a rising rate, between looks
MOST_ROWS = 100_000  # that the first stage is shown


def checked_output(out: Any, wanted: tuple[int, ...], who: str, meaning: str) -> Tensor:
    """What a network of a code returned, if it has the shape and, where values may be read, is finite."""
    if not isinstance(out, Tensor) or tuple(out.shape) != wanted:
        found = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise ValueError(f"the {who} returned {found}: return {meaning}, {wanted}")
    if may_read(out) and not bool(out.isfinite().all()):
        row = int((~out.isfinite()).flatten(1).any(1).nonzero()[0, 0])
        value = float(out.detach()[row][~out.detach()[row].isfinite()].flatten()[0])
        raise FloatingPointError(f"the {who} returned {value} for row {row}: look at the data there, or at its weights")
    return out


class Autoencoder(Code):
    """`space` of the data; `data` is the law that the decoder's numbers are, `likelihood_of(space)` unless told.

    `settled` says that encoder and decoder are trained in a first stage, and frozen; else such a stage is only where they
    start from.  `share` is that of the training's time which it takes, `first_steps` its updates, where these are told; 0:
    there is none.
    """

    def __init__(
        self,
        space: Space,
        encoder: nn.Module,
        decoder: nn.Module,
        data: DataLaw | None = None,
        settled: bool = False,
        share: float = 0.3,
        first_steps: int | None = None,
        lr: float = 2e-3,
        extras: tuple[Extra, ...] = (),
    ):
        super().__init__()
        if not 0 <= share < 1:
            raise ValueError(f"share = {share}: of the training's time, from 0 to 1")
        self.space, self.encoder, self.decoder = space, encoder, decoder
        self.data = likelihood_of(space) if data is None else data
        self.share, self.first_steps, self.lr, self.extras = share, first_steps, lr, extras
        self.trained = not settled
        for extra in extras:
            extra.check(self.data)
        if extras and not settled:
            raise ValueError(
                f"{type(extras[0]).__name__} is a loss of a first stage, and joint training is on the bound alone: choose "
                f"two stages, or leave it out"
            )

    def freeze(self) -> None:
        """After its own modules are there."""
        self.requires_grad_(self.trained)

    def decoded(self, z: Tensor) -> Law:
        """p(x | z) of what the decoder is given."""
        out = self.decoder(z)
        numbers = out.flatten(1) if isinstance(out, Tensor) and out.ndim > 1 else out
        who, meaning = f"decoder of {type(self).__name__}", "the numbers of a law of data"
        numbers = checked_output(numbers, (len(z), self.data.numbers), who, meaning)
        return self.data.law(numbers.to(torch.promote_types(numbers.dtype, torch.float32)))

    def asked(self, x: Tree) -> Any:
        """What the encoder says; of one that is settled not in the precision of the training, but always the same."""
        with nullcontext() if self.trained else torch.autocast(first_leaf(x).device.type, enabled=False):
            return self.encoder(x)

    def unlikely(self, law: Law, x: Tree) -> Tensor:
        """-log p(x | z)."""
        return -law.log_prob(x).double()

    def first_loss(self, x: Tree, noise: NoiseSource) -> tuple[Tensor, Law]:
        """The loss of the first stage, a number per row, and the law p(x | z) that it saw."""
        raise self.unanswered("first_loss(x, noise)", "what its first stage minimises")

    def begin(self, x: Tree, generator: torch.Generator) -> None:
        """Before the first update of the first stage."""

    def after(self, step: int, done: float, generator: torch.Generator) -> None:
        """After an update of the first stage, when a share of it lies behind."""

    def finish(self, rows: Rows, seed: int) -> None:
        """After the first stage."""

    def prepare(self, rows: Rows, seconds: float | None, device: torch.device, seed: int) -> bool:
        if (self.share if self.first_steps is None else self.first_steps) == 0:
            return False
        self.to(device)
        self.requires_grad_(True)
        devices = [device.index or 0] if device.type == "cuda" else []
        with torch.enable_grad(), torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed)
            settle(self, rows, None if seconds is None else self.share * seconds, device, seed)
        self.requires_grad_(self.trained)
        with torch.no_grad():
            self.finish(rows, seed)
        wrong = next((name for name, value in self.state_dict().items() if not bool(value.isfinite().all())), None)
        if wrong is not None:
            raise FloatingPointError(f"the first stage left {wrong} of {type(self).__name__} not finite: {REMEDY}")
        return True


REMEDY = "nothing was saved yet: choose a lower rate, lr=..., or other weights of its losses"


def settle(code: Autoencoder, rows: Rows, seconds: float | None, device: torch.device, seed: int) -> None:
    """The first stage: Adam, its rate rising, then falling to 0, until the time is over or the updates are done."""
    x = rows(MOST_ROWS)
    count = batch_size(x)
    batch = max(1, min(64 if device.type == "cpu" else 256, count))
    order = torch.Generator().manual_seed(seed)
    total = code.first_steps if code.first_steps is not None else STEPS if seconds is None else None

    def some(n: int) -> tuple[Tree, NoiseSource]:
        chosen = torch.randint(count, (n,), generator=order)
        return map_leaves(lambda leaf: leaf.to(device), some_rows(x, chosen)), NoiseSource(seed, chosen, device)

    code.begin(some(min(count, 4096))[0], order)
    for extra in code.extras:
        extra.begin(map_leaves(lambda leaf: leaf.to(device), some_rows(x, slice(4096))), code.data, device, seed)
    parameters = [p for p in code.parameters() if p.requires_grad]
    optimiser = torch.optim.Adam(parameters, lr=code.lr)
    began, step, done = perf_counter(), 0, 0.0
    while done < 1.0:
        part, noise = some(batch)
        loss, law = code.first_loss(part, noise.at("first", step))
        for extra in code.extras:
            loss = loss + extra.loss(part, code.data.mean(law), done)
        loss = loss.mean() / code.data.coordinates
        if step % LOOK == 0 and not bool(loss.isfinite()):
            what = f"the first stage of {type(code).__name__}: the loss of update {step + 1} is {float(loss.detach())}"
            raise FloatingPointError(f"{what}; {REMEDY}")
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        for group in optimiser.param_groups:
            group["lr"] = code.lr * min(1.0, (step + 1) / WARM) * (0.01 + 0.99 * (1 + cos(pi * done)) / 2)
        optimiser.step()
        step += 1
        done = step / total if total is not None else (perf_counter() - began) / max(seconds or 0.0, 1e-9)
        code.after(step, min(done, 1.0), order)
    optimiser.zero_grad()
