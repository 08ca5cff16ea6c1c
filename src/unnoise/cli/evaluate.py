"""`unnoise evaluate`: how good a trained model is."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from unnoise.cli.extending import Extended
from unnoise.paths import check_data, check_run


@dataclass(kw_only=True)
class Evaluate(Extended):
    """The bound on data with its three terms, the exact likelihood where there is one, and the quality of samples."""

    folder: Annotated[Path, tyro.conf.Positional]
    """The folder of the run."""

    data: Path | None = None
    """A file of the same format to evaluate on; the run's held-out rows unless given."""

    trained_on: Path | None = None
    """The file that the run was trained on, where it is no longer where it was."""

    minutes: float | None = None
    """Time for all of it; as long as the training took unless given, and at least half a minute.  What is left out or cut
    short for it is said, and what is asked for by number is not."""

    rows: int | None = None
    """At most so many examples; 4,096 unless given."""

    draws: int | None = None
    """Times and noise drawn for each; 8 unless given."""

    samples: int | None = None
    """Samples drawn for their quality (tables and sequences); 0 for none.  Tables: as many as training rows, at most 20,000,
    unless given.  Sequences: as many as are drawn soon, and no more than the rows they are compared with."""

    target: str | None = None
    """A column to predict from the others, for the utility of a table's samples, on rows of --data or held-out ones; the
    last one of few labels unless given."""

    exact_rows: int | None = None
    """Rows whose exact likelihood is found, where there is one; 64 unless given, 256 on an accelerator; 0 for none."""

    judge_minutes: float | None = None
    """Training time of the judge of sequences, which is kept in the run's folder; 0.5 unless given, 2 on an accelerator; 0
    for no judge."""

    seed: int = 0
    """Of all draws."""

    device: str = "auto"
    """auto or cpu."""

    json: bool = False
    """Print the result as JSON."""

    def check(self) -> None:
        """What can be said of the options alone."""
        check_run(self.folder)
        for path in (self.data, self.trained_on):
            if path is not None:
                check_data(path)

    def run(self) -> int:
        self.check()
        from unnoise.evaluation.report import evaluate
        from unnoise.evaluation.shown import shown
        from unnoise.training.run import Run
        from unnoise.training.safe_files import strict_json

        self.load_extensions()
        result = evaluate(
            Run.open(self.folder),
            self.data,
            rows=self.rows,
            draws=self.draws,
            samples=self.samples,
            target=self.target,
            exact_rows=self.exact_rows,
            judge_minutes=self.judge_minutes,
            seed=self.seed,
            device=self.device,
            progress=not self.json,
            trained_on=self.trained_on,
            minutes=self.minutes,
        )
        print(strict_json(result) if self.json else shown(result))
        return 0
