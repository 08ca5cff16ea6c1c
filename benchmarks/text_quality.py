"""Bits per character: masked and uniform diffusion beside an autoregressive model of the same size, data and time.

    python benchmarks/text_quality.py TRAIN.txt.gz VALID.txt.gz [--minutes 5] [--only masking,uniform,causal]

A diffusion model's figure is its bound on held-out windows, the autoregressive one's its exact likelihood.
"""

import argparse
import json
import tempfile
from math import log
from pathlib import Path

import torch

import unnoise as un
from unnoise.data.read import Reading, read
from unnoise.evaluation.judge import train_judge
from unnoise.evaluation.report import bound_on
from unnoise.training.recipes import recipe
from unnoise.training.run import Run
from unnoise.training.trainer import train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", type=Path)
    parser.add_argument("valid", type=Path)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--preset")
    parser.add_argument("--only", default="causal,masking")
    parser.add_argument("--draws", type=int, default=4)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    preset = options.preset or ("small" if device == "cuda" else "tiny")
    form, x0 = read(options.train, Reading(length=options.length))
    valid = form.encode(options.valid)
    result: dict = {"symbols": len(form.alphabet), "training windows": len(x0), "held-out windows": len(valid)}
    wanted = options.only.split(",")
    if "causal" in wanted:
        judge = train_judge(x0, valid, len(form.alphabet), preset, options.minutes, device=device)
        result["causal"] = {"bits": judge.nats / log(2), "steps": judge.steps, "seconds": judge.seconds}
        print(json.dumps(result), flush=True)
    if "masking" in wanted:
        config = recipe(form, len(x0), preset, device, minutes=options.minutes)
        run = Run.create(Path(tempfile.mkdtemp()) / "run", config)
        outcome = train(run, x0)
        found = bound_on(run.denoiser(which="best").to(device), valid, options.draws, 0)
        x, _ = un.sample(run.denoiser(which="best").to(device), n=2, steps=options.length, sampler=un.samplers.Reveal())
        result["masking"] = {"bits": found["bits_per_dim"], "steps": outcome.step, "seconds": outcome.seconds}
        result["masking"] |= {"standard_error": found["standard_error"] / options.length / log(2), "ended": outcome.reason}
        result["masking"]["samples"] = form.texts(x.cpu())
    if {"causal", "masking"} <= set(wanted):
        result["ratio"] = result["masking"]["bits"] / result["causal"]["bits"]
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
