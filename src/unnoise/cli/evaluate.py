"""`unnoise evaluate`: how good a trained model is."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from unnoise.cli.extending import Extended
from unnoise.cli.tables import table
from unnoise.training.safe_files import strict_json


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

    def run(self) -> int:
        from unnoise.evaluation.report import evaluate
        from unnoise.training.run import Run

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


def shown(result: dict[str, Any]) -> str:
    """Figures line by line, a table of the samples beside the controls, one of draws given a column, and a verdict."""
    beside = {name: value for name, value in result.items() if name.startswith(("samples", "control_"))}
    apart = (*beside, "columns", "conditioned", "verdict", "cut_short")
    texts = [_lines({name: value for name, value in result.items() if name not in apart})]
    whys = [(name, why) for values in beside.values() for name, why in values.items() if name.endswith("_why")]
    texts[0] = "\n".join([texts[0], *(_lines({name: why}) for name, why in dict.fromkeys(whys))])
    if beside:
        names = [name for values in beside.values() for name in values]
        figures = list(dict.fromkeys(name for name in names if not name.endswith(("_why", "_is"))))
        rows = [[_words(name), *(_cell(values.get(name)) for values in beside.values())] for name in figures]
        texts.append(table(["", *(_words(name).removeprefix("control ") for name in beside)], rows))
    if result.get("conditioned"):
        texts.append(_conditioned(result["conditioned"]["given"]))
    if "cut_short" in result:
        texts.append("cut short for time: " + "; ".join(result["cut_short"]))
    if "verdict" in result:
        texts.append("verdict: " + result["verdict"]["words"])
    return "\n\n".join(texts)


def _conditioned(given: list[dict[str, Any]]) -> str:
    """Of each neighbourhood, the column whose mean differs most from that of the model's own rows."""
    names = ("mean", "mean_of_own_rows", "mean_of_real_rows", "in_errors", "from_real_in_errors")
    rows = [[e["given"], str(e["rows"]), e["column"], *(f"{e[name]:.4g}" for name in names)] for e in given]
    return table(["drawn given", "rows", "column", "mean", "own rows", "real rows", "errors apart", "from real"], rows)


def _lines(result: dict[str, Any], indent: str = "") -> str:
    lines = []
    for name, value in result.items():
        if isinstance(value, dict):
            lines += [f"{indent}{_words(name)}", _lines(value, indent + "  ")]
        else:
            lines.append(f"{indent + _words(name):24} {_cell(value)}")
    return "\n".join(lines)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return "; ".join(value) if value and isinstance(value[0], str) else " ... ".join(map(_cell, value))
    return f"{value:.5g}" if isinstance(value, float) else "-" if value is None else str(value)
