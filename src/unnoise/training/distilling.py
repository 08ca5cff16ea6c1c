"""A run that is distilled from another.

It is made of the same configuration, the same data and the weights that the teacher shows, of which the folder keeps a
copy, `teacher.safetensors`: a teacher may be moved or trained on.  Its rows held out are the teacher's.  What a later round
is taught by is saved with every state, so that `unnoise train --resume` goes on exactly.  No bound is measured on the way
and no state is the best one: the last is taken.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from unnoise.data.source_file import NAME, SourceFile
from unnoise.denoiser import Denoiser
from unnoise.distillation import Distillation, distillation, plan_of
from unnoise.training.run import Run, RunError, load_weights
from unnoise.training.tensor_files import read_tensors, write_tensors

TEACHER = "teacher.safetensors"
DECAYS = {"progressive": "cosine", "consistency": "constant"}
LR = 0.3  # of the teacher's


def begun(
    teacher: Run,
    out: Path | str,
    method: str = "consistency",
    steps: int = 4,
    options: dict[str, Any] | None = None,
    train: dict[str, Any] | None = None,
) -> Run:
    """A new run whose student is the teacher's copy; `train` are settings of a `TrainConfig` in place of the teacher's."""
    train = train or {}
    own: dict[str, Any] = {"method": method, "steps": steps, "options": dict(options or {})}
    if teacher.config.distilled is not None:
        raise RunError(
            f"{teacher.folder} is itself distilled, from {teacher.config.distilled['from']}: distil that one, in fewer steps"
        )
    denoiser = teacher.denoiser(which="best")
    distillation(method, denoiser, denoiser, steps, own["options"])  # refused now, if it is
    settings = teacher.config.train.to_json()
    settings |= {"lr": LR * settings["lr"], "decay": DECAYS[method], "capture": False, "patience": None, "start": "nothing"}
    settings |= {"ema": settings["ema"] or [0.99]}
    if any(train.get(name) is not None for name in ("steps", "epochs", "minutes")):
        settings |= dict.fromkeys(("steps", "epochs", "minutes"))
    settings |= {name: value for name, value in train.items() if value is not None}
    config = replace(
        teacher.config,
        train=type(teacher.config.train).from_json(settings),
        distilled={"from": str(teacher.folder.resolve()), **own},
    )
    run = Run.create(out, config, teacher.formats)
    write_tensors(run.folder / TEACHER, denoiser.state_dict())
    if (teacher.folder / NAME).exists():
        SourceFile.load(teacher.folder).save(run.folder)
    return run


def distillation_of(run: Run, denoiser: Denoiser) -> Distillation | None:
    """What a distilled run minimises; before its first state the denoiser is given the teacher's weights."""
    said = run.config.distilled
    if said is None:
        return None
    weights = read_tensors(run.folder / TEACHER)
    teacher = run.denoiser_of_config()
    for module in (teacher, denoiser) if not run.found() else (teacher,):
        load_weights(module, weights, run.folder / TEACHER)
    denoiser.process.requires_grad_(False)
    denoiser.plan = plan_of(said["method"], denoiser.process, said["steps"])
    return distillation(said["method"], denoiser, teacher, said["steps"], said["options"])
