"""Bits per symbol of sequences: masked and uniform diffusion beside an autoregressive network of the same size and data, and
beside a Markov model with back-off.

    python benchmarks/text_quality.py --text TRAIN VALID [--dna TRAIN VALID] [--minutes 5]
        [--only markov,causal,masking,uniform] [--length 256] [--preset small] [--json-out FILE]

Every training is capped by --minutes and stops early on the same rows, a fiftieth of the training file that no model learns
from.  All figures are of the whole validation file, in windows that start without context.  A diffusion model's is its
bound, an upper one; the others' are exact.  The autoregressive network is trained by AdamW and by Muon, each twice as short
as the cap allows, and the better counts: it has seen enough long before.  The diffusion models are trained as `unnoise
train` does.
"""

import argparse
import json
import tempfile
import time
from math import log
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unnoise.cli.extending import settings
from unnoise.data.read import Reading, read
from unnoise.data.sequences import Sequences
from unnoise.evaluation.judge import train_judge
from unnoise.evaluation.likelihood import bound_on
from unnoise.evaluation.markov import fit_markov
from unnoise.training.data_order import split
from unnoise.training.drawing import draw
from unnoise.training.recipes import recipe
from unnoise.training.run import Run
from unnoise.training.trainer import train

HELD = 0.02
RATES = {"adamw": 1e-3, "muon": 1e-3}  # of the autoregressive network


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("text", "dna"):
        parser.add_argument(f"--{name}", type=Path, nargs=2, metavar=("TRAIN", "VALID"))
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--preset")
    parser.add_argument("--only", default="markov,causal,masking,uniform")
    parser.add_argument("--draws", type=int, default=4, help="of times and noise for each window of the validation file")
    parser.add_argument("--rows", type=int, help="use only the first so many windows of the training file")
    parser.add_argument("--valid-rows", type=int, help="and of the validation file")
    parser.add_argument("--set", action="append", default=[], help="name=value, any training setting; may be repeated")
    parser.add_argument("--json-out", type=Path)
    return parser.parse_args()


def bits(nats: float, length: int) -> float:
    return nats / length / log(2)


def markov(x: Tensor, valid: Tensor, size: int) -> dict[str, Any]:
    began = time.perf_counter()
    kept, held = split(len(x), HELD, 0)
    model = fit_markov(x[kept], x[held], size)
    found = -float(model.log_prob(valid).mean())
    return {"bits": bits(found, x.shape[1]), "order": model.order, "seconds": time.perf_counter() - began}


def causal(x: Tensor, valid: Tensor, size: int, preset: str, minutes: float, device: str) -> dict[str, Any]:
    kept, held = split(len(x), HELD, 0)
    result: dict[str, Any] = {}
    for optimiser, lr in RATES.items():
        judge = train_judge(x[kept], x[held], size, preset, minutes / 2, lr=lr, optimiser=optimiser, device=device)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            nats = -float(judge.log_prob(valid).mean())
        told = {"bits": bits(nats, x.shape[1]), "steps": judge.steps, "seconds": judge.seconds}
        result[optimiser] = told
    return {"bits": min(told["bits"] for told in result.values()), **result}


def diffusion(
    form: Sequences, x: Tensor, valid: Tensor, preset: str, options: argparse.Namespace, device: str
) -> dict[str, Any]:
    chosen = {"minutes": options.minutes, "validation": HELD, **settings(options.set)}
    config = recipe(form, len(x), preset, device, **chosen)
    with tempfile.TemporaryDirectory() as folder:
        run = Run.create(Path(folder) / "run", config)
        outcome = train(run, x)
        denoiser = run.denoiser(which="best").to(device)
    with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        found = bound_on(denoiser, valid, options.draws, 0)
        shown, _ = draw(denoiser, form, 3, steps=form.length, device=device, seed=0)
    error = found["standard_error"]
    return {
        "bits": found["bits_per_dim"],
        "standard_error": None if error is None else bits(error, form.length),
        "steps": outcome.step,
        "epochs": outcome.epoch,
        "seconds": outcome.seconds,
        "ended by": outcome.reason,
        "parameters": sum(p.numel() for p in denoiser.parameters()),
        "samples": form.texts(shown),
    }


def figures(options: argparse.Namespace, files: list[Path], device: str) -> dict[str, Any]:
    preset = options.preset or ("small" if device == "cuda" else "tiny")
    wanted = options.only.split(",")
    form, x = read(files[0], Reading(length=options.length, padded=False))
    assert isinstance(form, Sequences) and isinstance(x, Tensor)
    valid = form.encode(files[1])
    assert isinstance(valid, Tensor)
    x, valid = x[: options.rows], valid[: options.valid_rows]
    size = len(form.alphabet)
    result: dict[str, Any] = {"symbols": size, "training windows": len(x), "validation windows": len(valid)}

    def tell(name: str, value: Any) -> None:
        result[name] = value
        print(files[0].name, name, json.dumps(value), flush=True)

    if "markov" in wanted:
        tell("markov", markov(x, valid, size))
    if "causal" in wanted:
        tell("causal", causal(x, valid, size, preset, options.minutes, device))
    for noise in ("masking", "uniform"):
        if noise in wanted:
            form.noise = noise
            tell(noise, diffusion(form, x, valid, preset, options, device))
            if "causal" in result:
                tell(f"{noise} / causal", result[noise]["bits"] / result["causal"]["bits"])
    return result


def main() -> None:
    options = parsed()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    jobs = {name: getattr(options, name) for name in ("text", "dna") if getattr(options, name)}
    if not jobs:
        raise SystemExit("pass --text TRAIN VALID, --dna TRAIN VALID, or both")
    result = {name: figures(options, files, device) for name, files in jobs.items()}
    told = json.dumps(result, indent=1)
    if options.json_out:
        options.json_out.write_text(told + "\n")
    print(told)


if __name__ == "__main__":
    main()
