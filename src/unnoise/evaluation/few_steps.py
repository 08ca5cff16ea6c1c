"""What a distilled run gained and lost: its scores in few steps, beside its teacher's in as many and in many.

    teacher in many steps    the teacher as it is sampled unless told
    teacher in few steps     in the student's number
    student                  the student in its own

Each set of samples is of one size, of the same seed, and scored alike (`scores`), by the same judge, which the teacher's
folder keeps: tables by the two-sample score, sequences by the entropy of a row and the judge's perplexity, images by the
share that classifiers recognise, if labels are given.

A judge's perplexity falls where samples repeat themselves, so two models are compared at one entropy: the logits of a model
in few steps are divided by the temperature at which its samples have the entropy of the teacher's in many, found by
bisection.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from unnoise.data.array_files import load
from unnoise.data.source_file import SourceFile
from unnoise.denoiser import AnyDenoiser
from unnoise.evaluation.budget import Budget, calm_threads
from unnoise.evaluation.images import pixels, train_recogniser
from unnoise.evaluation.report import trained_sets
from unnoise.evaluation.scores import Study, has_scores, no_scores, sample_scores
from unnoise.predictions import Posterior
from unnoise.samplers import own_plan
from unnoise.training import safe_files
from unnoise.training.data_order import split
from unnoise.training.drawing import device_of, draw
from unnoise.training.run import Run

NAME = "distilled.json"  # in the run's folder
MANY, FEW, STUDENT = "teacher_in_many_steps", "teacher_in_few_steps", "student"
COOLEST, WARMEST, HALVINGS = 0.25, 2.0, 6  # temperatures, and how often their range is halved
CLASSIFIER_STEPS = {"cpu": 200, "cuda": 2000}
IMAGES = 500
BOUND_IS = "that of the network's reverse process in infinitely many steps, not of what is drawn in few"


class Tempered(AnyDenoiser):
    """A denoiser of categories whose logits are divided by a temperature."""

    def __init__(self, denoiser: AnyDenoiser, temperature: float):
        super().__init__()
        self.inner, self.process, self.temperature = denoiser, denoiser.process, temperature
        self.plan = denoiser.plan

    def forward(self, x_t, t, /, **condition):
        prediction = self.inner(x_t, t, **condition).to(Posterior)
        return prediction.with_value(prediction.value / self.temperature)


@calm_threads()
def few_steps(
    run: Run,
    teacher: Run,
    many: int | None = None,
    samples: int | None = None,
    judge_minutes: float | None = None,
    labels: Path | None = None,
    seed: int = 0,
    device: str = "auto",
    progress: bool = False,
    minutes: float | None = None,
) -> dict[str, Any]:
    """The figures, which are written to `distilled.json` too; `minutes` is for each set of samples."""
    said, format, where = run.config.distilled, run.format(), device_of(device)
    if said is None:
        raise ValueError(f"{run.folder} is not distilled: evaluate it with unnoise evaluate {run.folder}")
    models = {
        name: one.for_drawing(one.denoiser(which="best")).to(where) for name, one in (("own", run), ("other", teacher))
    }
    long = own_plan(models["other"], many).steps if many is None else many
    plans = {MANY: (models["other"], many), FEW: (models["other"], said["steps"]), STUDENT: (models["own"], None)}
    result: dict[str, Any] = {
        **said,
        "many": long,
        "bound_why": run.no_bound,
        "bound_is": None if run.no_bound else BOUND_IS,
    }
    scored, sets = has_scores(format), trained_sets(run)
    judged = None if labels is None else _recogniser(run, labels, where, seed)
    studies: dict[str, Study] = {}
    for name, (model, steps) in plans.items():
        calls: list[int] = []

        def drawn(n: int, model=model, steps=steps, calls=calls) -> Any:
            x, info = draw(model, format, n, steps=steps, seed=seed, device=device, progress=progress, telling=run.telling())
            calls.append(info.calls)
            return x if run.telling() is None else format.apart(x)[0]

        found: dict[str, Any] = {}
        if scored:
            studies[name] = Study(
                train=sets[0],
                unseen=sets[1],
                draw=drawn,
                samples=samples,
                seed=seed,
                where=where,
                folder=teacher.folder,  # one judge of all its students
                trained_with=run.config.train.seed,
                judge_minutes=judge_minutes,
                progress=progress,
                budget=Budget(float("inf") if minutes is None else 60 * minutes, 6, progress),
            )
            all_of_it = sample_scores(format, studies[name])
            found = {k: v for k, v in all_of_it["samples"].items() if isinstance(v, float | int)}
            if name == MANY:
                result |= {k: _numbers(v) for k, v in all_of_it.items() if k.startswith("control_")}
        if judged is not None:
            found["recognised"] = judged(drawn(samples or IMAGES))
        if not found:
            result |= no_scores(format)
        result[name] = {"calls": calls[-1] if calls else None, **found}
    if "judge_perplexity" in result[MANY]:
        for name in (FEW, STUDENT):
            result[f"{name}_at_its_entropy"] = matched(
                plans[name], studies[name], format, result[MANY]["entropy"], seed, device
            )
    safe_files.write_json(run.folder / NAME, json.loads(json.dumps(result)))
    return result


def _numbers(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if isinstance(value, float | int)}


def matched(
    plan: tuple[Any, int | None], study: Study, format: Any, entropy: float, seed: int, device: str
) -> dict[str, Any]:
    """Scores at the temperature at which rows have this entropy, or at the end of the range that is nearest to it."""
    model, steps = plan
    low, high = COOLEST, WARMEST
    best: dict[str, Any] = {}
    for _ in range(HALVINGS):
        temperature = (low * high) ** 0.5
        cooled = Tempered(model, temperature)
        x = draw(cooled, format, len(study.unseen), steps=steps, seed=seed, device=device)[0]
        found = sample_scores(format, _given(study, x))["samples"]
        here = {"temperature": temperature, **{name: found[name] for name in ("entropy", "judge_perplexity", "judge_bits")}}
        if not best or abs(here["entropy"] - entropy) < abs(best["entropy"] - entropy):
            best = here
        low, high = (temperature, high) if here["entropy"] < entropy else (low, temperature)
    return {**best, "wanted_entropy": entropy}


def _given(study: Study, x: Any) -> Study:
    return replace(study, draw=lambda n: x[:n], samples=len(x))


def _recogniser(run: Run, labels: Path, where: torch.device, seed: int) -> Any:
    """The share of samples that classifiers recognise, which are trained on the images that the run was trained on."""
    format: Any = run.format()
    origin, known = load(SourceFile.load(run.folder).path), torch.as_tensor(load(labels)).long().reshape(-1)
    if len(origin) != len(known):
        raise ValueError(f"{labels} has {len(known)} labels, and the run was trained on {len(origin)} images: one for each")
    kept, _ = split(len(origin), run.config.train.validation, run.config.train.seed)
    recogniser = train_recogniser(
        pixels(origin[kept.numpy()], format), known[kept], CLASSIFIER_STEPS[where.type], seed=seed, device=where
    )

    return lambda x: recogniser(pixels(format.values(x), format)).share
