"""Scores of the formats of the library: samples of tables and of sequences, beside unseen and independent rows."""

from math import log
from typing import Any

from torch import Tensor

from unnoise.data.sequences import Sequences
from unnoise.data.table import Table
from unnoise.evaluation import molecules, sequences
from unnoise.evaluation.judge import Judge, judge_of
from unnoise.evaluation.scores import Study, chosen, data_figures, sample_scores
from unnoise.evaluation.table_study import MOST_SAMPLES, table_scores
from unnoise.evaluation.verdicts import of_sequences
from unnoise.training.recipes import preset_for

# the defaults on a processor and on an accelerator
JUDGE_MINUTES = {"cpu": 0.5, "cuda": 2.0}
SEQUENCE_WORK = {"cpu": 2**22, "cuda": 2**28}  # symbols given to the network for samples of sequences: n x length^2


@data_figures.register
def _(format: Sequences, x0: Tensor, bound: float) -> dict[str, Any]:
    nats = bound * len(x0) / int(sequences.own_symbols(format, x0).sum())
    return {"bits_per_symbol": nats / log(2), "perplexity": sequences.perplexity(nats)}


@sample_scores.register
def _(format: Table, study: Study) -> dict[str, Any]:
    return table_scores(format, study)


@sample_scores.register
def _(format: Sequences, study: Study) -> dict[str, Any]:
    """Samples, and as many unseen rows and rows of independent symbols, each against the training rows."""
    train, unseen, seed = study.train, study.unseen, study.seed
    count = study.samples or min(MOST_SAMPLES, max(64, SEQUENCE_WORK[study.where.type] // format.length**2))
    with study.budget.part("drawing samples"):
        x = study.samples_in_time(min(count, len(unseen)))  # no more than there are rows to compare with
    with study.budget.part("judge"):
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
    with study.budget.part("scores"):
        result |= {name: scores.score(part) for name, part in sets.items()}
    if format.form == "smiles":
        result |= _chemistry(format, train, sets, result, study.progress)
    return result | {"verdict": of_sequences(result)}


def _judge(format: Sequences, study: Study) -> Judge | None:
    minutes = JUDGE_MINUTES[study.where.type] if study.judge_minutes is None else study.judge_minutes
    if study.judge_minutes is None:
        fits = [minutes / k for k in (1, 2, 5, 10) if 60 * minutes / k <= study.budget.share(0.7)]
        fits = fits or [minutes / 10]  # few lengths, so that the one that is kept is found again
        if fits[0] < minutes:
            study.budget.cut(f"training of the judge: {60 * fits[0]:.0f} of {60 * minutes:.0f} s")
        minutes = fits[0]
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
