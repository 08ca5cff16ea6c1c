"""An autoregressive model of sequences: a judge of samples, and a yardstick for diffusion models of the same size.

It is trained on the training split with early stopping on held-out rows; its exact log-likelihood of other sequences says
how likely a reader of the data would find them.  A judge alone is fooled by samples that repeat what is common, so its
perplexity is read beside the samples' own entropy.
"""

from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor

from unnoise.networks.presets import PRESETS
from unnoise.networks.transformer import SequenceTransformer, SequenceTransformerConfig
from unnoise.shapes import Float, Int


@dataclass
class Judge:
    """A trained model, and its nats per symbol on held-out rows."""

    model: SequenceTransformer
    nats: float
    steps: int
    seconds: float

    @torch.no_grad()
    def log_prob(self, x: Int[Tensor, "rows length"], batch: int = 256) -> Float[Tensor, "rows"]:
        device = next(self.model.parameters()).device
        return torch.cat([self.model.log_prob(part.to(device)).double().cpu() for part in x.split(batch)])


def train_judge(
    train: Int[Tensor, "rows length"],
    held: Int[Tensor, "held length"],
    size: int,
    preset: str = "small",
    minutes: float = 5.0,
    steps: int | None = None,
    batch: int = 128,
    lr: float = 1e-3,
    patience: int = 6,
    seed: int = 0,
    device: torch.device | str = "cpu",
    windows: bool = True,
) -> Judge:
    """Train until the time (or the steps) are up, or until the held-out rows get no likelier for `patience` looks."""
    device = torch.device(device)
    options = PRESETS[preset]["SequenceTransformer"]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        length = 0 if windows else train.shape[1]
        model = SequenceTransformer(SequenceTransformerConfig(size=size, causal=True, length=length, **options)).to(device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01, betas=(0.9, 0.99), fused=True)
    order = torch.Generator().manual_seed(seed)
    best: tuple[float, dict[str, Tensor]] = (float("inf"), {})
    train, waited, step, began = train.to(device), 0, 0, perf_counter()
    per_look = max(50, min(500, len(train) // batch))
    half = torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")
    while waited < patience:
        done = (perf_counter() - began) / (60 * minutes) if steps is None else step / steps
        if done >= 1:
            break
        for group in optimiser.param_groups:
            group["lr"] = lr * min(1.0, (step + 1) / 100) * max(0.02, 1 - done)
        rows = torch.randint(len(train), (batch,), generator=order).to(device)
        with half:
            loss = -model.log_prob(train[rows]).mean() / train.shape[1]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        step += 1
        if step % per_look == 0:
            nats = _nats(model, held, half)
            better = nats < best[0]
            best = (nats, {k: v.clone() for k, v in model.state_dict().items()}) if better else best
            waited = 0 if better else waited + 1
    nats = _nats(model, held, half)
    if best[0] < nats:
        model.load_state_dict(best[1])
        nats = best[0]
    return Judge(model.eval(), nats, step, perf_counter() - began)


@torch.no_grad()
def _nats(model: SequenceTransformer, held: Tensor, half) -> float:
    """Nats per symbol on held-out rows."""
    device = next(model.parameters()).device
    with half:
        total = sum(float(-model.log_prob(part.to(device)).double().sum()) for part in held.split(256))
    return total / held.numel()
