"""An autoregressive model of sequences: a judge of samples, and a yardstick for diffusion models of the same size.

It is trained on the training split with early stopping on held-out rows; its exact log-likelihood of other sequences says
how likely a reader of the data would find them.  A judge alone is fooled by samples that repeat what is common, so its
perplexity is read beside the samples' own entropy.

`judge_of` keeps it in the run's folder, RUN/judge, as safetensors with a manifest: the next evaluation of the same rows with
the same settings finds it there.
"""

import hashlib
import warnings
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from unnoise.batch_sizes import in_batches
from unnoise.kernels.noise import available
from unnoise.networks.compiled import compile_network, uncompiled
from unnoise.networks.presets import PRESETS
from unnoise.networks.transformer import SequenceTransformer, SequenceTransformerConfig
from unnoise.shapes import Float, Int
from unnoise.training import safe_files
from unnoise.training.config import TrainConfig
from unnoise.training.data_order import split
from unnoise.training.optimiser import Optimiser
from unnoise.training.run import load_weights

STOPPING = 0.05  # share of its rows that the judge leaves out to know when to stop
STOPPING_ROWS = 512  # at most


@dataclass
class Judge:
    """A trained model, and its nats per symbol on held-out rows."""

    model: SequenceTransformer
    nats: float
    steps: int
    seconds: float

    def log_prob(self, x: Int[Tensor, "rows length"], batch: int = 256) -> Float[Tensor, "rows"]:
        return self.log_probs(x, batch).sum(1)

    @torch.no_grad()
    def log_probs(self, x: Int[Tensor, "rows length"], batch: int = 256) -> Float[Tensor, "rows length"]:
        """log p of each symbol given those before it."""
        device = next(self.model.parameters()).device
        with uncompiled(self.model):
            return torch.cat(
                in_batches(
                    len(x),
                    batch,
                    lambda first, count: self.model.log_probs(x[first : first + count].to(device)).double().cpu(),
                )
            )


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
    optimiser: str = "adamw",
) -> Judge:
    """Train until the time (or the steps) are up, or until the held-out rows get no likelier for `patience` looks."""
    device = torch.device(device)
    model = _network(size, preset, 0 if windows else train.shape[1], seed).to(device)
    config = TrainConfig(steps=1, lr=lr, optimiser=optimiser, weight_decay=0.1 if optimiser == "muon" else 0.01)
    updates, never = Optimiser(model, config), torch.zeros((), device=device)
    if available(device):
        compile_network(model)
    order = torch.Generator().manual_seed(seed)
    best: tuple[float, dict[str, Tensor]] = (float("inf"), {})
    train, waited, step, began = train.to(device), 0, 0, perf_counter()
    per_look = max(50, min(500, len(train) // batch))
    half = torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")
    while waited < patience:
        done = (perf_counter() - began) / (60 * minutes) if steps is None else step / steps
        if done >= 1:
            break
        rows = torch.randint(len(train), (batch,), generator=order).to(device)
        with half:
            loss = -model.log_prob(train[rows]).mean() / train.shape[1]
        loss.backward()
        updates.clip(1.0)
        updates.update(lr * min(1.0, (step + 1) / 100) * max(0.02, 1 - done), never)
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


def _network(size: int, preset: str, length: int, seed: int) -> SequenceTransformer:
    """A causal network with first weights of the seed's; `length` 0: positions mean nothing in themselves."""
    options = PRESETS[preset]["SequenceTransformer"]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return SequenceTransformer(SequenceTransformerConfig(size=size, causal=True, length=length, **options))


def judge_of(
    folder: Path,
    rows: Int[Tensor, "rows length"],
    size: int,
    windows: bool,
    preset: str,
    minutes: float,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Judge:
    """The judge of these training rows: the one in the folder if it was made from them with these settings, else a new one.

    A share of the rows tells when to stop, so that rows which are not among them are unseen in every way.
    """
    about: dict[str, Any] = {"rows": hashlib.sha256(rows.contiguous().numpy().tobytes()).hexdigest(), "size": size}
    about |= {"length": rows.shape[1], "windows": windows, "preset": preset, "minutes": minutes, "seed": seed}
    kept = load_judge(folder, about)
    if kept is not None:
        kept.model.to(device)
        return kept
    seen, stopping = split(len(rows), STOPPING, seed)
    judge = train_judge(
        rows[seen],
        rows[stopping[:STOPPING_ROWS]],
        size,
        preset,
        minutes,
        batch=32 if preset == "tiny" else 128,
        lr={"tiny": 3e-3, "small": 1e-3, "base": 5e-4}[preset],
        seed=seed,
        device=device,
        windows=windows,
    )
    save_judge(folder, judge, about)
    return judge


def save_judge(folder: Path, judge: Judge, about: dict[str, Any]) -> None:
    """In place of the one that was there."""

    def fill(target: Path) -> None:
        weights = {
            name: value.detach().to("cpu", copy=True).contiguous() for name, value in judge.model.state_dict().items()
        }
        save_file(weights, target / "judge.safetensors")
        safe_files.write_json(
            target / "judge.json", {**about, "nats": judge.nats, "steps": judge.steps, "seconds": judge.seconds}
        )

    if folder.exists():
        safe_files.remove_folder(folder)
    safe_files.save_folder(folder, fill, {})


def load_judge(folder: Path, about: dict[str, Any]) -> Judge | None:
    """The judge in a folder, where it is whole and is what `about` says; the network is built from `about` alone."""
    if not folder.exists():
        return None
    try:
        safe_files.verified(folder)
        said = safe_files.read_json(folder / "judge.json")
        if {name: said.get(name) for name in about} != about:
            return None
        if not all(isinstance(said.get(name), int | float) for name in ("nats", "steps", "seconds")):
            raise safe_files.Damaged(f"{folder / 'judge.json'} does not say how the judge was trained")
        model = _network(about["size"], about["preset"], 0 if about["windows"] else about["length"], about["seed"])
        load_weights(model, load_file(folder / "judge.safetensors"), folder)
    except safe_files.RunError as error:
        warnings.warn(f"{error}; the judge is trained again", stacklevel=2)
        return None
    return Judge(model.eval(), said["nats"], said["steps"], said["seconds"])


@torch.no_grad()
def _nats(model: SequenceTransformer, held: Tensor, half) -> float:
    """Nats per symbol on held-out rows."""
    device = next(model.parameters()).device
    with half, uncompiled(model):
        total = sum(float(-model.log_prob(part.to(device)).double().sum()) for part in held.split(256))
    return total / held.numel()
