"""How few steps are enough: the curve over steps of a model and of what is distilled from it.

    python benchmarks/distillation.py FILE --out FOLDER [--teacher RUN] [--methods consistency,progressive] [--steps 16,64]
        [--many 256] [--minutes 5] [--student-minutes 5] [--labels FILE] [--noise uniform] [--length 256] [--samples 256]
        [--judge-minutes 2] [--preset small] [--set name=value]

Trains a model of FILE (or takes one, --teacher), distils it for each method and number of steps, and scores the samples
of all of them: sequences by judge perplexity with the entropy of a row beside it, and at the entropy of the teacher's
samples in many steps; images by the share that classifiers recognise (--labels); tables by the two-sample score.
FOLDER/curve.json has
every figure, and goes on where it was cut short.

On one H200 the two curves of interest are, in about 20 and 15 minutes:

    python benchmarks/distillation.py TEXT --out text --noise uniform --steps 4,8,16,32,64 --many 256
    python benchmarks/distillation.py IMAGES --labels LABELS --out images --methods progressive,consistency --steps 1,2,4,8
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from unnoise.cli.extending import settings
from unnoise.data.read import Reading, read_source
from unnoise.evaluation.few_steps import FEW, MANY, STUDENT, few_steps
from unnoise.evaluation.shown import table
from unnoise.training.distilling import begun
from unnoise.training.recipes import recipe
from unnoise.training.run import Run
from unnoise.training.task import Task
from unnoise.training.trainer import train

SHOWN = ("judge_perplexity", "entropy", "recognised", "two_sample")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--teacher", type=Path, help="a run of FILE; trained here unless given")
    parser.add_argument("--methods", default="consistency")
    parser.add_argument("--steps", default="4,16,64")
    parser.add_argument("--many", type=int, default=256)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--student-minutes", type=float, default=5.0)
    parser.add_argument("--labels", type=Path)
    parser.add_argument("--noise", help="of sequences: masking or uniform")
    parser.add_argument("--length", type=int)
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--judge-minutes", type=float, default=2.0)
    parser.add_argument("--preset")
    parser.add_argument("--set", action="append", default=[], help="name=value, any training setting; may be repeated")
    return parser.parse_args()


def taught(options: argparse.Namespace, device: str) -> tuple[Run, Any]:
    """The teacher, trained, and its rows."""
    reading = Reading(noise=options.noise, length=options.length)
    form, x0, source = read_source(options.file, reading)
    folder = options.teacher or options.out / "teacher"
    if not (folder / "config.json").exists():
        task, more = Task.of(form), settings(options.set)
        config = recipe(task, len(x0), options.preset, device, minutes=options.minutes, **more)
        run = Run.create(folder, config, task=task)
        source.save(run.folder)
        train(run, x0, progress=True)
    return Run.open(folder), x0


def main() -> None:
    options, device = parsed(), "cuda" if torch.cuda.is_available() else "cpu"
    options.out.mkdir(parents=True, exist_ok=True)
    teacher, x0 = taught(options, device)
    path = options.out / "curve.json"
    curve: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    for method in options.methods.split(","):
        for steps in map(int, options.steps.split(",")):
            name = f"{method} {steps}"
            if name in curve:
                continue
            limits = {"minutes": options.student_minutes, **settings(options.set)}
            run = begun(teacher, options.out / name.replace(" ", "-"), method, steps, None, limits)
            outcome = train(run, x0, progress=True)
            kept = {"judge_minutes": options.judge_minutes, "labels": options.labels, "samples": options.samples}
            curve[name] = {
                **few_steps(run, teacher, options.many, **kept),
                "updates": outcome.step,
                "seconds": outcome.seconds,
            }
            path.write_text(json.dumps(curve, indent=1) + "\n")
    print(shown(curve))


def shown(curve: dict[str, Any]) -> str:
    """One line for each student, with its teacher in as many steps and in many beside it."""
    rows = []
    for name, found in curve.items():
        for figure in (figure for figure in SHOWN if figure in found[MANY]):
            sets = [found[one].get(figure) for one in (MANY, FEW, STUDENT)]
            rows.append([name, figure.replace("_", " "), *(f"{value:.4g}" for value in sets)])
        if f"{STUDENT}_at_its_entropy" in found:
            matched = [found[f"{one}_at_its_entropy"]["judge_perplexity"] for one in (FEW, STUDENT)]
            many = found[MANY]["judge_perplexity"]
            rows.append([name, "judge perplexity at its entropy", *(f"{value:.4g}" for value in (many, *matched))])
    return table(["distilled", "figure", "teacher, many steps", "teacher, few", "student"], rows)


if __name__ == "__main__":
    main()
