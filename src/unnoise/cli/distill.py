"""`unnoise distill`: from a trained model to one that needs fewer steps."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from unnoise.cli.extending import Extended, settings
from unnoise.paths import check_data, check_run


@dataclass(kw_only=True)
class Distill(Extended):
    """Teach a copy of a run's model to draw in few steps, and say what that gained and lost.

    The new run is sampled, evaluated, filled and resumed as any other.
    """

    folder: Annotated[Path, tyro.conf.Positional]
    """The folder of the run that teaches."""

    out: Path = Path("distilled")
    """The folder of the new run."""

    method: str = "consistency"
    """progressive (numbers: two of the teacher's steps in one, again and again) or consistency (numbers, categories under
    uniform or masked noise, tables of these)."""

    steps: int = 4
    """In which the new model is sampled."""

    set_method: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = field(default_factory=tuple)
    """name=value, for an option of the method: rounds; of progressive: weighting; of consistency: delta, averaged, solver,
    metric; may be repeated."""

    updates: int | None = None
    """Updates of all rounds together."""

    minutes: float | None = None
    """Time of training; the teacher's own limits unless told."""

    batch_size: int | None = None
    """Examples per update; the teacher's unless told."""

    lr: float | None = None
    """The largest learning rate; 0.3 of the teacher's unless told."""

    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = field(default_factory=tuple)
    """name=value, for any other setting of a `TrainConfig`; may be repeated."""

    many: int | None = None
    """Steps of the teacher that it is compared with; the teacher's default unless told."""

    samples: int | None = None
    """Of each model, for the comparison; 0 for none."""

    judge_minutes: float | None = None
    """Training time of the judge of sequences."""

    labels: Path | None = None
    """Labels of the images that the run was trained on (.npy or IDX), for the share of samples that classifiers
    recognise."""

    seed: int = 0
    """Of all draws."""

    device: str = "auto"
    """auto or cpu."""

    json: bool = False
    """Print the result as JSON."""

    def check(self) -> None:
        """What can be said of the options alone."""
        check_run(self.folder)
        if self.steps < 1:
            raise ValueError(f"--steps {self.steps}: at least one is needed")
        if self.labels is not None:
            check_data(self.labels)
        settings(self.set_method, "--set-method")
        settings(self.set)

    def run(self) -> int:
        self.check()
        from unnoise.data.files import read_once
        from unnoise.data.source_file import SourceFile
        from unnoise.training.distilling import begun
        from unnoise.training.launch import made_by_main, team
        from unnoise.training.run import Run
        from unnoise.training.trainer import Trainer

        self.load_extensions()
        teacher = Run.open(self.folder)
        origin = SourceFile.load(self.folder)
        if not origin.path.exists() or not origin.still_at(origin.path):
            raise ValueError(f"{origin.path} is not what {self.folder} was trained on, as it was then: put it back")
        with read_once():
            x0 = teacher.format().encode(origin.path)

        def make() -> Run:
            train = {"steps": self.updates, "minutes": self.minutes, "batch_size": self.batch_size, "lr": self.lr}
            told = {"device": "cpu"} if self.device == "cpu" else {}
            options = settings(self.set_method, "--set-method")
            return begun(teacher, self.out, self.method, self.steps, options, {**train, **told, **settings(self.set)})

        with team(teacher.config.train) as accelerator:
            run = made_by_main(accelerator, make)
            trainer = Trainer(run, x0, progress=not self.json)
            outcome = trainer.fit()
            return self._told(run, teacher, outcome) if accelerator.is_main_process else 0

    def _told(self, run: Any, teacher: Any, outcome: Any) -> int:
        from unnoise.evaluation.few_steps import few_steps
        from unnoise.evaluation.page import write_report
        from unnoise.evaluation.shown import few_steps_shown
        from unnoise.training.safe_files import strict_json

        result: dict[str, Any] = {}
        if self.samples != 0:
            more: dict[str, Any] = {"judge_minutes": self.judge_minutes, "labels": self.labels, "progress": not self.json}
            result = few_steps(run, teacher, self.many, self.samples, seed=self.seed, device=self.device, **more)
        report = write_report(run)
        if self.json:
            print(strict_json({"run": str(run.folder), **vars(outcome), **result}))
            return 0
        print(f"{outcome.step} updates, {outcome.seconds:.0f} s, ended by {outcome.reason}; the run is in {run.folder}")
        if result:
            print(few_steps_shown(result))
        print(f"curves and samples: {report}")
        print(f"next: unnoise sample {run.folder} -n 100")
        return 0
