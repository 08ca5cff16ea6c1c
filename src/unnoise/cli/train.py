"""`unnoise train`: from a file to a trained model."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from unnoise.cli.tables import table
from unnoise.data.base import Format
from unnoise.data.read import Reading

COUNT = Annotated[int | None, tyro.conf.arg(metavar="N")]


@dataclass(kw_only=True)
class Train:
    """Train a model of a file: a CSV, Parquet, text, FASTA, SMILES, NumPy or IDX file, gzipped or not.

    The state space is read off the data and printed as a table; --dry-run stops there.
    """

    path: Annotated[Path | None, tyro.conf.Positional] = None
    """The file."""

    out: Path = Path("run")
    """The folder of the run."""

    resume: Path | None = None
    """Go on with the run in this folder, exactly; PATH may be left out if the file is where it was."""

    dry_run: bool = False
    """Say what was understood of the file, and stop."""

    preset: str | None = None
    """The size of the network: tiny (default without an accelerator), small, base."""

    steps: COUNT = None
    """Updates."""

    epochs: COUNT = None
    """Passes over the data."""

    minutes: float | None = None
    """Time; 5 minutes unless told (1 without an accelerator)."""

    batch_size: COUNT = None
    """Examples per update."""

    lr: float | None = None
    """The largest learning rate."""

    schedule: str | None = None
    """Of the noise of numbers: cosine, linear, cosine_offset, linear_beta, log_snr_linear, sigmoid, or learned."""

    self_condition: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Show the network its own first estimate: two evaluations per call."""

    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = field(default_factory=tuple)
    """name=value, for any other setting of a `TrainConfig`, such as accumulate=4, weighting=min_snr, compile=true; may be
    repeated."""

    seed: int = 0
    """Of the network, the order of the data and all noise."""

    device: str = "auto"
    """auto or cpu."""

    length: COUNT = None
    """Symbols in a window of text, or in a padded sequence."""

    text: str | None = None
    """Read text as `characters` or `bytes`; the file decides unless told."""

    tokenizer: Path | None = None
    """A tokenizer file (the JSON of the `tokenizers` package) for text."""

    padded: bool | None = None
    """One line or sequence per example, rather than windows of a long text."""

    encoding: str = "utf-8"
    """Of a table's text, such as latin-1."""

    categories: bool = False
    """Take the levels of an array as ordinal categories rather than numbers."""

    noise: str | None = None
    """What sequences are noised by: masking, unless told uniform; and --categories of an array: ordinal or masking."""

    columns: Path | None = None
    """A YAML file with kinds for columns that were misunderstood: `age: number`, `zip: category`, `id: drop`."""

    json: bool = False
    """Print the result as JSON."""

    def reading(self) -> Reading:
        return Reading(
            length=self.length,
            text=self.text,
            tokenizer=self.tokenizer,
            padded=self.padded,
            encoding=self.encoding,
            categories=self.categories,
            noise=self.noise,
            columns=self.columns,
        )

    def run(self) -> int:
        import torch

        from unnoise.data.read import read
        from unnoise.spaces import batch_size
        from unnoise.training.config import settings
        from unnoise.training.processes import made_by_main, team
        from unnoise.training.recipes import recipe
        from unnoise.training.run import Run
        from unnoise.training.trainer import train

        if self.resume is not None:
            return self._resume()
        if self.path is None:
            raise ValueError("which file? unnoise train PATH --out RUN")
        format, x0 = read(self.path, self.reading())
        rows = batch_size(x0)
        if self.dry_run:
            if self.json:
                print(json.dumps({"rows": rows, "lines": [vars(line) for line in format.lines()]}))
            else:
                self._understood(format, rows)
            return 0
        if rows < 4:
            raise ValueError(f"{self.path}: {rows} examples are too few to train on")
        device = "cuda" if self.device == "auto" and torch.cuda.is_available() else "cpu"
        config = recipe(
            format,
            rows,
            self.preset,
            device,
            self.schedule,
            self.self_condition,
            steps=self.steps,
            epochs=self.epochs,
            minutes=self.minutes,
            batch_size=self.batch_size,
            lr=self.lr,
            seed=self.seed,
            device=self.device,
            **settings(self.set),
        )
        path = self.path.resolve()

        def make() -> Run:
            if not self.json:
                self._understood(format, rows)
            run = Run.create(self.out, config)
            (run.folder / "data.json").write_text(json.dumps({"path": str(path)}) + "\n")
            return run

        with team(config.train) as accelerator:
            run = made_by_main(accelerator, make)
            outcome = train(run, x0, progress=not self.json)
            return self._told(run, outcome) if accelerator.is_main_process else 0

    def _understood(self, format: Format, rows: int) -> None:
        lines = [[line.part, line.kind, line.values, line.process] for line in format.lines()]
        print(table(["part", "kind", "values", "noise"], lines))
        print(f"{rows} examples of {self.path}" + (f", numbers under the schedule {self.schedule}" if self.schedule else ""))

    def _resume(self) -> int:
        from unnoise.training.processes import made_by_main, team
        from unnoise.training.run import Run
        from unnoise.training.trainer import train

        assert self.resume is not None
        folder = self.resume

        def make() -> Run:
            run = Run.open(folder)
            changes = {"steps": self.steps, "epochs": self.epochs, "minutes": self.minutes}
            changes = {name: value for name, value in changes.items() if value is not None}
            if changes:
                run.change(**changes)
            return run

        with team(Run.open(folder).config.train) as accelerator:
            run = made_by_main(accelerator, make)
            path = self.path or Path(json.loads((run.folder / "data.json").read_text())["path"])
            outcome = train(run, run.format().encode(path), progress=not self.json)
            return self._told(run, outcome) if accelerator.is_main_process else 0

    def _told(self, run, outcome) -> int:
        from unnoise.training.drawing import draw
        from unnoise.training.panels import shown_suffix
        from unnoise.training.report import write_report

        format = run.format()
        shown = run.samples / f"last{shown_suffix(format)}"
        count = 64 if shown.suffix == ".png" else 16
        x, _ = draw(run.denoiser(which="best"), format, count, seed=self.seed, device=self.device)
        format.write(x, shown)
        report = write_report(run, shown)
        if self.json:
            print(json.dumps({"run": str(run.folder), **vars(outcome)}))
        else:
            best = "" if outcome.best is None else f", bound {outcome.best:.4f} nats on held-out rows"
            print(
                f"{outcome.step} steps, {outcome.seconds:.0f} s, ended by {outcome.reason}{best}; the run is in {run.folder}"
            )
            print(f"curves and samples: {report}")
            print(f"next: unnoise sample {run.folder} -n 100 --out samples{run.format().suffix}")
        return 0
