"""All figures of a trained run: the bound and the exact likelihood of data, and the quality of samples beside controls.

What the data's kind has no figure for is null, and `..._why` says why.
"""

import warnings
from math import log
from pathlib import Path
from typing import Any

from torch import Tensor

from unnoise.data.base import Format
from unnoise.data.sequences import Sequences
from unnoise.data.source_file import NAME, SourceFile
from unnoise.data.table import Table
from unnoise.evaluation import molecules, sequences, tables
from unnoise.evaluation.judge import Judge, judge_of
from unnoise.evaluation.likelihood import bound_figures, bound_on, bound_terms, exact_on
from unnoise.shapes import Tree
from unnoise.training.data_order import split
from unnoise.training.drawing import device_of, draw
from unnoise.training.recipes import preset_for
from unnoise.training.run import Run
from unnoise.tree import batch_size, map_leaves

__all__ = ["bound_on", "evaluate"]

MOST_SAMPLES = 20_000
# the defaults on a processor and on an accelerator
EXACT_ROWS = {"cpu": 64, "cuda": 256}
JUDGE_MINUTES = {"cpu": 0.5, "cuda": 2.0}
SEQUENCE_WORK = {"cpu": 2**22, "cuda": 2**28}  # symbols given to the network for samples of sequences: n x length^2


def _encoded(format: Format, path: Path) -> tuple[Tree, list[str]]:
    """A file's states; values of a table that were never seen are moved to the nearest, and what was moved."""
    if not isinstance(format, Table):
        return format.encode(path), []
    with warnings.catch_warnings(record=True) as moved:
        warnings.simplefilter("always")
        x = format.encode(path, unseen="nearest")
    return x, [str(one.message) for one in moved]


def _trained_on(run: Run, path: Path | None) -> Path:
    """The file that a run was trained on, as it was then."""
    noted = path is None or (run.folder / NAME).exists()
    origin = SourceFile.load(run.folder) if noted else SourceFile(path)  # type: ignore[arg-type]
    path = path or origin.path
    other = "name it with --trained-on, or pass --data FILE --samples 0 for the bound on other rows"
    if not path.exists():
        raise ValueError(f"{path}, which the run was trained on, is not there any more: {other}")
    if not origin.still_at(path):
        raise ValueError(
            f"{path} is not what the run was trained on, so which rows were held out is not known: put it back, {other}"
        )
    return path


def _rows(x: Tree, which: Tensor) -> Tree:
    return map_leaves(lambda leaf: leaf[which], x)


def evaluate(
    run: Run,
    data: Path | None = None,
    rows: int = 4096,
    draws: int = 8,
    samples: int | None = None,
    target: str | None = None,
    exact_rows: int | None = None,
    judge_minutes: float | None = None,
    seed: int = 0,
    device: str = "auto",
    progress: bool = False,
    trained_on: Path | None = None,
) -> dict[str, Any]:
    """Every figure that the data's kind has.  `trained_on` is the training file, where the run does not know it, or where it
    is elsewhere now."""
    if rows < 1:
        raise ValueError(f"rows = {rows}: at least one is needed")
    if samples is not None and samples < 0:
        raise ValueError(f"samples = {samples}: pass their number, or 0 for none")
    where = device_of(device)
    format, denoiser = run.format(), run.denoiser(which="best").to(where)
    if target is not None:
        _check_target(format, target, samples)
    scored = samples != 0 and isinstance(format, Table | Sequences)
    train: Any = None
    unseen: Any = None
    moved: list[str] = []
    if data is None or scored:
        everything = format.encode(_trained_on(run, trained_on))
        kept, held = split(batch_size(everything), run.config.train.validation, run.config.train.seed)
        if data is None and not len(held):
            raise ValueError(f"{run.folder} held no rows out: pass --data FILE")
        train, unseen = _rows(everything, kept), _rows(everything, held)
    if data is not None:
        unseen, moved = _encoded(format, data)
    if not batch_size(unseen):
        raise ValueError(f"{data} holds no example of the model's length")
    x0 = _rows(unseen, sequences.chosen(batch_size(unseen), rows, seed))
    terms = bound_terms(
        denoiser, x0, draws, seed, progress=progress, options=run.objective_options(), log_fill=format.log_fill
    )
    result: dict[str, Any] = {"on": str(data) if data is not None else "held-out rows"}
    result |= {"moved": moved} if moved else {}
    result |= bound_figures(terms, denoiser.process.space.dimension)
    if isinstance(format, Sequences):
        nats = result["bound"] * len(x0) / int(sequences.own_symbols(format, x0).sum())
        result |= {"bits_per_symbol": nats / log(2), "perplexity": sequences.perplexity(nats)}
    count = EXACT_ROWS[where.type] if exact_rows is None else exact_rows
    exact: tuple[dict[str, Any] | None, str | None] = (None, "--exact-rows 0")
    if count > 0:
        exact = exact_on(denoiser, format, map_leaves(lambda leaf: leaf[:count], x0), seed, options=run.objective_options())
    result |= {"exact": exact[0]} if exact[0] is not None else {"exact": None, "exact_why": exact[1]}
    if not scored:
        return result

    def drawn(n: int) -> Tree:
        return draw(denoiser, format, n, seed=seed, device=device, progress=progress)[0]

    if isinstance(format, Table):
        count = samples or min(batch_size(train), MOST_SAMPLES)
        result |= _table(format, train, unseen, drawn(count), target, seed)
    if isinstance(format, Sequences):
        count = samples or min(MOST_SAMPLES, max(64, SEQUENCE_WORK[where.type] // format.length**2))
        x = drawn(min(count, len(unseen)))  # no more than there are rows to compare with
        minutes = JUDGE_MINUTES[where.type] if judge_minutes is None else judge_minutes
        judge = None
        if minutes > 0:
            size, preset, own_seed = len(format.alphabet), preset_for(where), run.config.train.seed
            judge = judge_of(run.folder / "judge", train, size, not format.padded, preset, minutes, own_seed, where)
        result |= _sequences(format, train, unseen, x, judge, seed, progress)
    return result


def _check_target(format: Format, target: str, samples: int | None) -> None:
    """The column to predict must be one of a table whose samples are drawn."""
    if not isinstance(format, Table):
        raise ValueError(f"target = {target!r}: only tables have columns to predict: leave it out")
    names = [column.name for column in format.columns]
    if target not in names:
        raise ValueError(f"target = {target!r}: there is no such column: use one of {names}")
    if samples == 0:
        raise ValueError(f"target = {target!r}: it is predicted from samples, and samples = 0: draw some")


def _frame(format: Table, x: Tree) -> Any:
    """States as a frame; texts that are numbers or dates to the model, such as dates with a zone, are numbers here."""
    frame = format.frame(x)
    for column in format.columns:
        values = frame[column.name]
        if column.scale is not None and not tables.is_number(values):
            frame[column.name] = column.scale.parse(values.astype(object).where(values.notna(), "").tolist())
    return frame


def _table(format: Table, train: Tree, unseen: Tree, x: Tree, target: str | None, seed: int) -> dict[str, Any]:
    """Samples x of a table, and as many unseen rows and rows of independent columns, each against the training rows.

    Where there are fewer unseen rows than samples, as many of the samples are scored once more.
    """
    real, fake, test = (_frame(format, part) for part in (train, x, unseen))
    n = min(len(fake), len(test))
    few = test.iloc[sequences.chosen(len(test), n, seed).numpy()]
    result = {"samples": tables.score(real, fake, test, target, seed).json()}
    if n < len(fake):
        result["samples_as_many_as_unseen"] = tables.score(real, fake.head(n), seed=seed).json()
    result["control_unseen_rows"] = tables.score(real, few, seed=seed).json()
    loose = tables.shuffled(real, seed).head(len(fake))
    return result | {"control_independent_columns": tables.score(real, loose, seed=seed).json()}


def _sequences(
    format: Sequences, train: Tensor, unseen: Tensor, x: Tensor, judge: Judge | None, seed: int, progress: bool
) -> dict[str, Any]:
    """Samples x, and as many unseen rows and rows of independent symbols, each against the training rows."""
    scores = sequences.SequenceScores(format, train, judge, seed)
    sets = {
        "samples": x,
        "control_unseen_rows": unseen[sequences.chosen(len(unseen), len(x), seed)],
        "control_independent_symbols": sequences.independent(format, train, len(x), seed),
    }
    result: dict[str, Any] = {"sampled": len(x)}
    if judge is not None:
        result["judge"] = {"steps": judge.steps, "seconds": judge.seconds}
    result |= {name: scores.score(part) for name, part in sets.items()}
    if format.form == "smiles":
        chemistry = molecules.MoleculeScores(format.texts(train), progress)
        for name, part in sets.items():
            result[name] |= chemistry.score(format.texts(part))
        if chemistry.chem is None:
            result["validity_why"] = molecules.NEEDED
    return result
