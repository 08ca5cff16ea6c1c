"""Every way to model a text, in one table: the same network size, the same number of training symbols, one judge.

    python benchmarks/method_table.py TRAIN VALID --out FOLDER [--row NAME] [--symbols N | --seconds 180]
        [--length 256] [--preset small] [--samples 256] [--steps 16,64,256] [--rows N] [--valid-rows N]

The number of symbols that every method is trained on is what the slowest of them sees in --seconds, measured first, or
--symbols; it is kept in FOLDER/table.json, to which each call adds its rows: --row does one, so that a table can be made of
several calls.  Columns: training time; bits per symbol of the validation file (a bound; exact for the autoregressive model);
and for each number of steps the perplexity that the judge, an autoregressive network trained by itself, gives to samples,
with the entropy of the samples beside it, for perplexity alone is lowest of samples that repeat themselves.
"""

import argparse
import json
import time
from math import exp, log
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unnoise.data.read import Reading, read
from unnoise.data.sequences import Sequences
from unnoise.evaluation.judge import Judge, judge_of, train_judge
from unnoise.evaluation.likelihood import bound_on
from unnoise.evaluation.sequences import entropies, own_symbols
from unnoise.training.drawing import draw
from unnoise.training.models import MODELS
from unnoise.training.recipes import recipe
from unnoise.training.run import Run
from unnoise.training.trainer import train

DATA: dict[str, tuple[str, dict[str, Any] | None]] = {  # name: (noise, model)
    "masking": ("masking", None),
    "uniform": ("uniform", None),
}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {"duo, no curriculum": ("duo", {"curriculum": False})}
AUTOREGRESSIVE = "autoregressive"
PACED = 30  # updates by which a method's pace is measured, after as many


def methods() -> dict[str, tuple[str, dict[str, Any] | None]]:
    """All rows but the autoregressive one: the data's own processes, every registered model, and variants of these."""
    models = {name: ("masking", {"name": name, "options": {}}) for name in MODELS}
    more = {row: ("masking", {"name": name, "options": dict(o)}) for row, (name, o) in VARIANTS.items() if name in MODELS}
    return {**DATA, **models, **more}


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", type=Path)
    parser.add_argument("valid", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--row", action="append", help=f"{', '.join(methods())}, {AUTOREGRESSIVE}; may be repeated")
    parser.add_argument("--symbols", type=int)
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--preset")
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--steps", default="16,64,256")
    parser.add_argument("--rows", type=int, help="use only the first so many windows of the training file")
    parser.add_argument("--valid-rows", type=int)
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--judge-minutes", type=float, default=2.0)
    options = parser.parse_args()
    if strange := [row for row in options.row or [] if row not in (*methods(), AUTOREGRESSIVE)]:
        parser.error(f"--row {strange[0]}: choose from {', '.join(methods())}, {AUTOREGRESSIVE}")
    return options


class Table:
    """The data, the judge, and the file of what was measured."""

    def __init__(self, options: argparse.Namespace):
        self.options, self.device = options, "cuda" if torch.cuda.is_available() else "cpu"
        self.preset = options.preset or ("small" if self.device == "cuda" else "tiny")
        form, x = read(options.train, Reading(length=options.length, padded=False))
        assert isinstance(form, Sequences) and isinstance(x, Tensor)
        valid = form.encode(options.valid)
        assert isinstance(valid, Tensor)
        self.form, self.x, self.valid = form, x[: options.rows], valid[: options.valid_rows]
        options.out.mkdir(parents=True, exist_ok=True)
        self.file = options.out / "table.json"
        self.told: dict[str, Any] = json.loads(self.file.read_text()) if self.file.exists() else {"rows": {}}

    def keep(self) -> None:
        self.file.write_text(json.dumps(self.told, indent=1) + "\n")

    def config(self, row: str, **wanted: Any) -> Any:
        self.form.noise, model = methods()[row]
        chosen = {"minutes": None, "patience": 10**9, "tensorboard": False, "panels": 0, **wanted}
        if self.options.batch_size:
            chosen["batch_size"] = self.options.batch_size
        return recipe(self.form, len(self.x), self.preset, self.device, model=model, **chosen)

    def pace(self, row: str) -> float:
        """Symbols a second, once updates run."""
        times = []
        for i, steps in enumerate((PACED, 2 * PACED)):
            run = Run.create(self.options.out / "pace" / f"{row}-{i}-{time.time_ns()}", self.config(row, steps=steps))
            outcome = train(run, self.x)
            times.append((outcome.seconds, run.config.train.batch_size))
        (first, batch), (second, _) = times
        return PACED * batch * self.options.length / max(1e-9, second - first)

    def symbols(self, rows: list[str]) -> int:
        """How many symbols every method is trained on."""
        if self.options.symbols:
            self.told["symbols"] = self.options.symbols
        if "symbols" not in self.told:
            paces = {row: self.pace(row) for row in methods()}
            self.told |= {"paces": paces, "symbols": int(min(paces.values()) * self.options.seconds)}
        self.told |= {"length": self.options.length, "preset": self.preset, "device": self.device}
        self.keep()
        return self.told["symbols"]

    def judge(self) -> Judge:
        folder = self.options.out / "judge"
        rows, size = self.x, len(self.form.alphabet)
        return judge_of(folder, rows, size, True, self.preset, self.options.judge_minutes, seed=1, device=self.device)

    def scored(self, judge: Judge, x: Tensor) -> dict[str, float]:
        own = own_symbols(self.form, x)
        return {
            "perplexity": exp(-float(judge.log_probs(x).mean())),
            "entropy": float(entropies(x, own, len(self.form.alphabet)).mean()),
        }

    def diffusion(self, row: str, symbols: int, judge: Judge) -> dict[str, Any]:
        config = self.config(row, steps=1)
        steps = max(1, symbols // (config.train.batch_size * self.options.length))
        run = Run.create(self.options.out / f"run-{row.replace(' ', '-')}-{time.time_ns()}", self.config(row, steps=steps))
        outcome = train(run, self.x)
        denoiser = run.denoiser(which="best").to(self.device)
        half = torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda")
        with half:
            found = bound_on(denoiser, self.valid, self.options.draws, 0, options=run.objective_options())
        result: dict[str, Any] = {
            "bits": found["bits_per_dim"],
            "error": (found["standard_error"] or float("nan")) / self.options.length / log(2),
            "updates": outcome.step,
            "seconds": outcome.seconds,
            "parameters": sum(p.numel() for p in denoiser.parameters()),
        }
        for count in map(int, self.options.steps.split(",")):
            began = time.perf_counter()
            with half:
                x, info = draw(denoiser, self.form, self.options.samples, steps=count, device=self.device, seed=0)
            assert isinstance(x, Tensor)
            result[str(count)] = {**self.scored(judge, x), "calls": info.calls, "seconds": time.perf_counter() - began}
        return result | {"sample": self.form.texts(x[:1])[0][:200]}

    def autoregressive(self, symbols: int) -> dict[str, Any]:
        batch = self.options.batch_size or (128 if self.device == "cuda" else 32)
        steps, size = max(1, symbols // (batch * self.options.length)), len(self.form.alphabet)
        cut = max(1, len(self.x) // 50)
        model = train_judge(
            self.x[cut:], self.x[:cut], size, self.preset, steps=steps, batch=batch, patience=10**9, device=self.device
        )
        nats = -float(model.log_prob(self.valid).mean())
        return {"bits": nats / self.options.length / log(2), "error": 0.0, "updates": model.steps, "seconds": model.seconds}

    def lines(self) -> list[str]:
        counts = self.options.steps.split(",")
        head = ["method", "bits per symbol", "training", *(f"judge at {count} (entropy)" for count in counts)]
        lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
        for row, told in sorted(self.told["rows"].items(), key=lambda pair: pair[1]["bits"]):
            scores = [told.get(count) for count in counts]
            cells = ["-" if s is None else f"{s['perplexity']:.2f} ({s['entropy']:.2f})" for s in scores]
            bits = f"{told['bits']:.3f}" + (f" ± {told['error']:.3f}" if told["error"] else " (exact)")
            lines.append("| " + " | ".join([row, bits, f"{told['seconds']:.0f} s", *cells]) + " |")
        return lines


def main() -> None:
    options = parsed()
    table = Table(options)
    rows = options.row or [*methods(), AUTOREGRESSIVE]
    symbols = table.symbols(rows)
    judge = table.judge()
    if "validation file" not in table.told:
        table.told["validation file"] = table.scored(judge, table.valid[: options.samples])
    for row in rows:
        told = table.autoregressive(symbols) if row == AUTOREGRESSIVE else table.diffusion(row, symbols, judge)
        table.told["rows"][row] = told
        table.keep()
        print(row, json.dumps(told), flush=True)
    print(f"{symbols} symbols each; validation text: {json.dumps(table.told['validation file'])}")
    print("\n".join(table.lines()))


if __name__ == "__main__":
    main()
