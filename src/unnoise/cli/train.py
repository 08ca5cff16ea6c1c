"""`unnoise train`: from a file to a trained model."""

import json
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

import tyro

from unnoise.cli.extending import Extended, pairs, settings
from unnoise.cli.tables import table
from unnoise.paths import check_data, check_run
from unnoise.start_up import StartUp, of_command, start_up_of, start_up_words

ON_THE_WAY = ("path", "load", "resume", "steps", "epochs", "minutes", "batch_size", "lr", "set", "device", "json")
PICTURED = 300  # rows of a table that are drawn for the pictures of the report
COUNT = Annotated[int | None, tyro.conf.arg(metavar="N")]


@dataclass(kw_only=True)
class Train(Extended):
    """Train a model of a file: a CSV, TSV, JSON-lines, Excel, Parquet, text, FASTA, SMILES, NumPy or IDX file, gzipped or
    not, a folder or an archive of images, a folder of Parquet files, or a file of a format of your own (--load).

    The state space is read off the data and printed as a table; --dry-run stops there.
    """

    path: Annotated[Path | None, tyro.conf.Positional] = None
    """The file."""

    out: Path = Path("run")
    """The folder of the run."""

    resume: Path | None = None
    """Go on with the run in this folder, exactly, or with other --steps, --epochs, --minutes, --batch-size, --lr and --set;
    PATH may be left out if the file is where it was."""

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

    network: str | None = None
    """A registered network by name, instead of the one that suits the data."""

    set_network: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = field(default_factory=tuple)
    """name=value, for a field of the network's configuration, such as width=128; may be repeated."""

    model: str | None = None
    """What is noised in place of the data: analog-bits, simplex, cir, embedding, duo, cadd, ccdd, latent or vq; unless told,
    the data themselves."""

    set_model: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = field(default_factory=tuple)
    """name=value, for an option of the model, such as width=32; may be repeated."""

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

    format: str | None = None
    """A registered format by name, where the file is not to be recognised by its looks: table, sequences, array, images,
    or your own."""

    option: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = field(default_factory=tuple)
    """name=value, for an option of the format: sheet=NAME of a spreadsheet, size=32 of images, axis=series or columns of an
    array, space=rotations, sphere, angles or composition of an array, or one of a format of your own; may be repeated."""

    length: COUNT = None
    """Symbols in a window of text, or in a padded sequence."""

    text: str | None = None
    """Read text as `characters` or `bytes`; the file decides unless told."""

    tokenizer: Path | None = None
    """A tokenizer file (the JSON of the `tokenizers` package) for text."""

    padded: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """One line or sequence per example, rather than windows of a long text."""

    no_padded: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Windows, where a FASTA file has many sequences; the file decides unless told."""

    encoding: str = "utf-8"
    """Of a table's text, such as latin-1."""

    categories: bool = False
    """Take the levels of an array as ordinal categories rather than numbers."""

    noise: str | None = None
    """What sequences are noised by: masking, unless told uniform; and --categories of an array: ordinal or masking."""

    columns: Path | None = None
    """A YAML file with kinds for columns that were misunderstood: `age: number`, `zip: category`, `id: drop`."""

    keep: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = field(default_factory=tuple)
    """A column of a table that is to be modelled though it is an identifier or private; may be repeated."""

    condition: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = field(default_factory=tuple)
    """What is not modelled but told to the network: a column of a table, another array of an .npz file, `label` for the
    folders of images or for the file of labels beside an IDX file; may be repeated."""

    drop: float | None = None
    """The share of rows that are trained without their conditions, for drawing without them, and guided; 0.1 unless told."""

    write: Path | None = None
    """With --dry-run: a YAML file to write what was understood of the columns to, to be edited and given to --columns."""

    json: bool = False
    """Print the result as JSON."""

    def check(self) -> None:
        """What can be said of the options alone."""
        if self.resume is not None:
            check_run(self.resume)
            self._changes()
        elif self.path is None:
            raise ValueError("which file? unnoise train PATH --out RUN")
        for path in (self.path, self.tokenizer, self.columns):
            if path is not None:
                check_data(path)
        if self.padded and self.no_padded:
            raise ValueError("--padded --no-padded: give one of the two")
        if self.drop is not None and not self.condition and self.resume is None:
            raise ValueError(f"--drop {self.drop:g} is of conditions: name one, --condition COLUMN, or leave it out")
        if self.write is not None and not self.dry_run:
            raise ValueError(f"--write {self.write} goes with --dry-run: add it, and train with --columns {self.write} then")
        pairs(self.option, "--option")
        settings(self.set_network, "--set-network")
        if settings(self.set_model, "--set-model") and self.model is None:
            raise ValueError(f"--set-model {self.set_model[0]} is an option of a model: name one, --model NAME")
        settings(self.set)

    def reading(self) -> Any:
        from unnoise.data.reading import Reading

        return Reading(
            format=self.format,
            options=pairs(self.option, "--option"),
            length=self.length,
            text=self.text,
            tokenizer=self.tokenizer,
            padded=self.padded if self.padded or self.no_padded else None,
            encoding=self.encoding,
            categories=self.categories,
            noise=self.noise,
            columns=self.columns,
            keep=self.keep,
            condition=self.condition,
        )

    def run(self) -> int:
        clock = of_command()
        self.check()
        from unnoise.data.read import read_source
        from unnoise.training.launch import made_by_main, team
        from unnoise.training.models import asked
        from unnoise.training.recipes import preset_for
        from unnoise.training.run import Run
        from unnoise.training.task import Task
        from unnoise.training.trainer import Trainer
        from unnoise.tree import batch_size

        self.load_extensions()
        clock.mark("import")
        if self.resume is not None:
            return self._resume(self.resume, clock)
        assert self.path is not None  # for mypy: `check` has looked
        format, x0, source = read_source(self.path, self.reading())
        rows = batch_size(x0)
        clock.mark("read")
        if self.dry_run:
            return self._dry_run(format, rows)
        if rows < 4:
            count = "1 example is" if rows == 1 else f"{rows} examples are"
            raise ValueError(f"{self.path}: {count} too few to train on, which takes 4: {format.few_rows_remedy()}")
        model = None
        if self.model is not None:
            size = self.preset or preset_for(self._on())
            model = asked(self.model, settings(self.set_model, "--set-model"), size)
        task = Task.of(format, self.schedule, model)
        config = self._config(task, rows)

        def make() -> Run:
            if not self.json:
                self._understood(format, rows)
            run = Run.create(self.out, config, task=task)
            source.save(run.folder)
            return run

        with team(config.train) as accelerator:
            run = made_by_main(accelerator, make)
            try:
                return self._train(Trainer(run, x0, progress=not self.json, start_up=clock))
            except BaseException:
                if accelerator.is_main_process:
                    run.drop_if_bare()  # so that the same command can be given again
                raise

    def _on(self) -> str:
        import torch

        return "cuda" if self.device == "auto" and torch.cuda.is_available() else "cpu"

    def _config(self, task: Any, rows: int) -> Any:
        from unnoise.training.recipes import recipe

        return recipe(
            task,
            rows,
            self.preset,
            self._on(),
            self_condition=self.self_condition,
            network=self.network,
            network_options=settings(self.set_network, "--set-network"),
            steps=self.steps,
            epochs=self.epochs,
            minutes=self.minutes,
            batch_size=self.batch_size,
            lr=self.lr,
            seed=self.seed,
            device=self.device,
            drop=self.drop,
            **settings(self.set),
        )

    def _train(self, trainer: Any) -> int:
        outcome = trainer.fit()
        return self._print_result(trainer, outcome) if trainer.accelerator.is_main_process else 0

    def _dry_run(self, format: Any, rows: int) -> int:
        from unnoise.data.files import write_bytes

        if self.json:
            lines = [vars(line) for line in format.lines()]
            print(json.dumps({"rows": rows, "lines": lines, "notes": format.notes()}))
        else:
            self._understood(format, rows)
        if self.write is not None:
            write_bytes(self.write, format.kinds().encode())
            if not self.json:
                print(f"kinds of the columns: {self.write}; edit it, and train with --columns {self.write}")
        return 0

    def _understood(self, format: Any, rows: int) -> None:
        lines = [[line.part, line.kind, line.values, line.process] for line in format.lines()]
        print(table(["part", "kind", "values", "noise"], lines))
        for note in format.notes():
            print(f"note: {note}")
        print(f"{rows} examples of {self.path}" + (f", numbers under the schedule {self.schedule}" if self.schedule else ""))

    def _resume(self, folder: Path, clock: StartUp) -> int:
        from unnoise.data.files import read_once
        from unnoise.data.source_file import NAME, SourceFile
        from unnoise.training.launch import made_by_main, team
        from unnoise.training.run import Run
        from unnoise.training.trainer import Trainer

        changes = self._changes()
        noted = self.path is None or (folder / NAME).exists()
        source = SourceFile.load(folder) if noted else SourceFile(self.path)  # type: ignore[arg-type]
        path = self.path or source.path
        before = Run.open(folder)
        with read_once():
            if not source.still_at(path):
                raise ValueError(
                    f"{path} is not the file that {folder} was trained on, as it was then ({source.path}): go on with that "
                    f"one, or start a new run"
                )
            x0 = before.format().encode(path)
        clock.mark("read")

        def make() -> Run:
            if changes:
                before.change(**changes)
            SourceFile(path.resolve(), source.digest).save(folder)
            return before

        with team(before.config.train) as accelerator:
            run = made_by_main(accelerator, make)
            return self._train(Trainer(run, x0, progress=not self.json, start_up=clock))

    def _changes(self) -> dict[str, Any]:
        """Settings that a run goes on with; whatever else is given cannot be changed any more."""
        for option in fields(self):
            default = () if option.default is MISSING else option.default
            if option.name not in ON_THE_WAY and getattr(self, option.name) != default:
                raise ValueError(f"--{option.name.replace('_', '-')} cannot change when a run goes on: start a new run")
        named = {name: getattr(self, name) for name in ("steps", "epochs", "minutes", "batch_size", "lr")}
        changes = {name: value for name, value in named.items() if value is not None} | settings(self.set)
        if self.device != "auto":
            changes["device"] = self.device
        if "steps" in changes or "epochs" in changes:  # these end the training now, as in a new run, and not the clock
            changes.setdefault("minutes", None)
        return changes

    def _print_result(self, trainer: Any, outcome: Any) -> int:
        from unnoise.evaluation.page import write_report
        from unnoise.networks.compiled import uncompiled
        from unnoise.training.convergence import of_run
        from unnoise.training.drawing import draw
        from unnoise.training.metrics import read_metrics
        from unnoise.training.safe_files import strict_json
        from unnoise.training.validation import error_words

        run, denoiser = trainer.run, trainer.best_denoiser()
        format = run.format()
        shown = run.samples / f"last{format.shown_suffix()}"
        rows = PICTURED if outcome.seconds >= 20 else 48  # no pictures are worth more time than a short training took
        count = 64 if shown.suffix == ".png" else rows if format.targets() else 16
        with uncompiled(denoiser):
            drawn_from, telling = run.for_drawing(denoiser), run.telling()
            x, _ = draw(drawn_from, format, count, seed=self.seed, device=self.device, telling=telling)
        format.write(x, shown)
        far = of_run(run, outcome.reason, denoiser.space.dimension)
        report, started = write_report(run, shown, trainer.source), start_up_of(read_metrics(run.metrics))
        if self.json:
            told = {"run": str(run.folder), **vars(outcome), "convergence": far.to_json(), "start_up": started}
            print(strict_json(told))
        else:
            error = error_words(outcome.best_se, len(trainer.held))
            best = "" if outcome.best is None else f", bound {outcome.best:.4f}{error} nats on held-out rows"
            print(
                f"{outcome.step} steps, {outcome.seconds:.0f} s, ended by {outcome.reason}{best}; the run is in {run.folder}"
            )
            if started:
                print(start_up_words(started))
            print(far.words)
            print(f"curves and samples: {report}")
            loads = "".join(f" --load {name}" for name in self.load)
            print(f"next: unnoise sample {run.folder}{loads} -n 100 --out samples{format.suffix}")
        return 0
