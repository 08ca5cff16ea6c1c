"""Scores of the formats of the library: samples of tables and of sequences, beside unseen and independent rows."""

from math import log
from typing import Any

from torch import Tensor

from unnoise.data.sequences import Sequences
from unnoise.data.table import Table
from unnoise.evaluation import molecules, sequences, tables
from unnoise.evaluation.judge import Judge, judge_of
from unnoise.evaluation.scores import Study, chosen, data_figures, sample_scores
from unnoise.shapes import Tree
from unnoise.training.recipes import preset_for
from unnoise.tree import batch_size

MOST_SAMPLES = 20_000
# the defaults on a processor and on an accelerator
JUDGE_MINUTES = {"cpu": 0.5, "cuda": 2.0}
SEQUENCE_WORK = {"cpu": 2**22, "cuda": 2**28}  # symbols given to the network for samples of sequences: n x length^2


@data_figures.register
def _(format: Sequences, x0: Tensor, bound: float) -> dict[str, Any]:
    nats = bound * len(x0) / int(sequences.own_symbols(format, x0).sum())
    return {"bits_per_symbol": nats / log(2), "perplexity": sequences.perplexity(nats)}


@sample_scores.register
def _(format: Table, study: Study) -> dict[str, Any]:
    """Samples of a table, and as many unseen rows and rows of independent columns, each against the training rows.

    Where there are fewer unseen rows than samples, as many of the samples are scored once more.
    """
    seed, x = study.seed, study.draw(study.samples or min(batch_size(study.train), MOST_SAMPLES))
    real, fake, test = (_frame(format, part) for part in (study.train, x, study.unseen))
    n = min(len(fake), len(test))
    few = test.iloc[chosen(len(test), n, seed).numpy()]
    result = {"samples": tables.score(real, fake, test, study.target, seed).json()}
    if n < len(fake):
        result["samples_as_many_as_unseen"] = tables.score(real, fake.head(n), seed=seed).json()
    result["control_unseen_rows"] = tables.score(real, few, seed=seed).json()
    loose = tables.shuffled(real, seed).head(len(fake))
    return result | {"control_independent_columns": tables.score(real, loose, seed=seed).json()}


def _frame(format: Table, x: Tree) -> Any:
    """States as a frame; texts that are numbers or dates to the model, such as dates with a zone, are numbers here."""
    frame = format.frame(x)[[column.name for column in format.columns]]  # without what stands beside the model
    for column in format.columns:
        values = frame[column.name]
        if column.scale is not None and not tables.is_number(values):
            frame[column.name] = column.scale.parse(values.astype(object).where(values.notna(), "").tolist())
    return frame


@sample_scores.register
def _(format: Sequences, study: Study) -> dict[str, Any]:
    """Samples, and as many unseen rows and rows of independent symbols, each against the training rows."""
    train, unseen, seed = study.train, study.unseen, study.seed
    count = study.samples or min(MOST_SAMPLES, max(64, SEQUENCE_WORK[study.where.type] // format.length**2))
    x = study.draw(min(count, len(unseen)))  # no more than there are rows to compare with
    judge = _judge(format, study)
    scores = sequences.SequenceScores(format, train, judge, seed)
    sets = {
        "samples": x,
        "control_unseen_rows": unseen[chosen(len(unseen), len(x), seed)],
        "control_independent_symbols": sequences.independent(format, train, len(x), seed),
    }
    result: dict[str, Any] = {"sampled": len(x)}
    if judge is not None:
        result["judge"] = {"steps": judge.steps, "seconds": judge.seconds}
    result |= {name: scores.score(part) for name, part in sets.items()}
    return result | _chemistry(format, train, sets, result, study.progress) if format.form == "smiles" else result


def _judge(format: Sequences, study: Study) -> Judge | None:
    minutes = JUDGE_MINUTES[study.where.type] if study.judge_minutes is None else study.judge_minutes
    if minutes <= 0:
        return None
    size, preset, windows = len(format.alphabet), preset_for(study.where), not format.padded
    return judge_of(study.folder / "judge", study.train, size, windows, preset, minutes, study.trained_with, study.where)


def _chemistry(
    format: Sequences, train: Tensor, sets: dict[str, Tensor], result: dict[str, Any], progress: bool
) -> dict[str, Any]:
    """Of molecules: how many are valid, different and new, beside what else is known of each set."""
    chemistry = molecules.MoleculeScores(format.texts(train), progress)
    more = {name: result[name] | chemistry.score(format.texts(part)) for name, part in sets.items()}
    return more | ({"validity_why": molecules.NEEDED} if chemistry.chem is None else {})
