"""All figures of a trained run: the bound and the exact likelihood of data, and the quality of samples beside controls.

What the data's kind has no figure for is null, and `..._why` says why.
"""

from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from unnoise.data.base import Format
from unnoise.data.files import read_once
from unnoise.data.source_file import NAME, SourceFile
from unnoise.denoiser import Denoiser
from unnoise.evaluation import file_scores  # noqa: F401  (it registers the scores of the library's own formats)
from unnoise.evaluation.budget import Budget, calm_threads
from unnoise.evaluation.likelihood import bound_figures, bound_on, bound_terms, exact_on
from unnoise.evaluation.scores import Study, chosen, data_figures, has_scores, no_scores, sample_scores
from unnoise.shapes import Tree
from unnoise.training.data_order import split
from unnoise.training.drawing import device_of, draw, fill
from unnoise.training.metrics import read_metrics
from unnoise.training.run import Run
from unnoise.tree import batch_size
from unnoise.tree import rows as some_rows

__all__ = ["bound_on", "evaluate"]

Sets = tuple[Any, Any, list[str]]  # rows that were trained on, rows to evaluate on, and what was moved in these
ROWS, DRAWS = 4096, 8  # of the bound, unless told
LEAST_SECONDS = 30.0
EXACT_ROWS = {"cpu": 64, "cuda": 256}  # the defaults on a processor and on an accelerator


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


@calm_threads()
def evaluate(
    run: Run,
    data: Path | None = None,
    rows: int | None = None,
    draws: int | None = None,
    samples: int | None = None,
    target: str | None = None,
    exact_rows: int | None = None,
    judge_minutes: float | None = None,
    seed: int = 0,
    device: str = "auto",
    progress: bool = False,
    trained_on: Path | None = None,
    sets: Sets | None = None,
    on: str | None = None,
    minutes: float | None = None,
) -> dict[str, Any]:
    """Every figure that the data's kind has.

    `trained_on` is the training file, where the run does not know it, or where it is elsewhere now.  `sets` are the states
    themselves, in place of files, and `on` what to call those evaluated on.  It takes about as long as the training did, and
    at least LEAST_SECONDS, or `minutes`; what is given by number (rows, draws, samples, exact_rows) is not cut short.
    """
    where, format, telling = device_of(device), run.format(), run.telling()
    _check(format, rows, samples, target)
    denoiser = run.denoiser(which="best").to(where)
    scored = samples != 0 and has_scores(format.written_format)
    train, unseen, moved = sets or _sets(run, data, trained_on, scored)
    budget = Budget(allowed(run, minutes), 6 if scored else 2, progress)
    x0 = some_rows(unseen, chosen(batch_size(unseen), rows or ROWS, seed))
    result: dict[str, Any] = {"on": on or (str(data) if data is not None else "held-out rows")}
    result |= {"moved": moved} if moved else {}
    if run.no_bound is not None:
        result |= {"bound": None, "bound_why": run.no_bound, "exact": None, "exact_why": run.no_bound}
    else:
        result |= _likelihoods(run, denoiser, format, x0, draws, exact_rows, seed, budget, progress)
    if scored:
        drawn_from = run.for_drawing(denoiser)

        def drawn(n: int) -> Any:
            x, _ = draw(drawn_from, format, n, seed=seed, device=device, progress=progress, telling=telling)
            return format.as_written(x)[1]

        study = Study(
            train=format.as_written(train)[1],  # type: ignore[arg-type]
            unseen=format.as_written(unseen)[1],  # type: ignore[arg-type]
            draw=drawn,
            samples=samples,
            seed=seed,
            where=where,
            folder=run.folder,
            trained_with=run.config.train.seed,
            target=target,
            judge_minutes=judge_minutes,
            progress=progress,
            fill=None if telling is not None else partial(_filled, drawn_from, seed + 1, device),
            budget=budget,
        )
        result |= sample_scores(format.written_format, study)
    elif samples != 0:
        result |= no_scores(format.written_format)
    budget.close()
    verdict = {"verdict": result.pop("verdict")} if "verdict" in result else {}
    more = {"cut_short": [*budget.cuts, "--minutes N gives it more time"]} if budget.cuts else {}
    return result | more | verdict


def _filled(denoiser: Denoiser, seed: int, device: str, x: Any, known: Any) -> Any:
    return fill(denoiser, x, known, seed=seed, device=device)[0]


def _likelihoods(
    run: Run,
    denoiser: Denoiser,
    format: Format,
    x0: Tree,
    draws: int | None,
    exact_rows: int | None,
    seed: int,
    budget: Budget,
    progress: bool,
) -> dict[str, Any]:
    """The bound, and the exact likelihood where there is one."""
    result: dict[str, Any] = {}
    options = run.objective_options()
    with budget.part("bound"):
        wanted, seconds = draws or DRAWS, inf if draws else budget.share(0.2)
        terms = bound_terms(
            denoiser,
            x0,
            wanted,
            seed,
            progress=progress,
            options=options,
            log_fill=format.log_fill,
            seconds=seconds,
            format=format,
        )
    if len(terms) < wanted:
        budget.cut(f"bound: {len(terms)} of {wanted} draws")
    result |= bound_figures(terms, denoiser.space.dimension)
    result |= data_figures(*format.as_written(x0), result["bound"])  # type: ignore[arg-type]
    with budget.part("exact likelihood"):
        result |= _exact(denoiser, format, x0, exact_rows, seed, options, budget)
    return result


def allowed(run: Run, minutes: float | None) -> float:
    """Seconds for an evaluation: as asked, else as long as the training took."""
    if minutes is not None:
        return 60 * minutes
    times = [line["seconds"] for line in read_metrics(run.metrics) if isinstance(line.get("seconds"), float | int)]
    return max(LEAST_SECONDS, max(times, default=inf))


def _exact(
    denoiser: Denoiser, format: Format, x0: Tree, rows: int | None, seed: int, options: dict[str, Any], budget: Budget
) -> dict[str, Any]:
    count = EXACT_ROWS[denoiser.device.type] if rows is None else rows
    if count <= 0:
        return {"exact": None, "exact_why": "--exact-rows 0"}
    part = some_rows(x0, slice(count))
    seconds = inf if rows is not None else budget.share(0.3)
    figures, why = exact_on(denoiser, format, part, seed, options=options, seconds=seconds)
    if figures is None:
        return {"exact": None, "exact_why": why}
    if figures["examples"] < batch_size(part):
        budget.cut(f"exact likelihood: {figures['examples']} of {batch_size(part)} rows")
    return {"exact": figures}


def _sets(run: Run, data: Path | None, trained_on: Path | None, scored: bool) -> Sets:
    """The rows trained on, where they are asked for, the rows to evaluate on, and what was moved in these."""
    format, train, moved = run.format(), None, list[str]()
    unseen: Any = None
    if data is None or scored:
        with read_once():
            everything = format.encode(_trained_on(run, trained_on))
        kept, held = split(batch_size(everything), run.config.train.validation, run.config.train.seed)
        if data is None and not len(held):
            raise ValueError(f"{run.folder} held no rows out: pass --data FILE")
        train, unseen = some_rows(everything, kept), some_rows(everything, held)
    if data is not None:
        unseen, moved = format.encode_nearest(data)
    if not batch_size(unseen):
        raise ValueError(f"{data} holds no example of the model's length")
    return train, unseen, moved


def trained_sets(run: Run) -> tuple[Any, Any]:
    """The rows that a run was trained on, and those that were held out."""
    return _sets(run, None, None, True)[:2]


def _check(format: Format, rows: int | None, samples: int | None, target: str | None) -> None:
    """What was asked for, before any work; a column to predict must be one of a table whose samples are drawn."""
    if rows is not None and rows < 1:
        raise ValueError(f"rows = {rows}: at least one is needed")
    if samples is not None and samples < 0:
        raise ValueError(f"samples = {samples}: pass their number, or 0 for none")
    if target is None:
        return
    names = format.targets()
    if not names:
        raise ValueError(f"target = {target!r}: only tables have columns to predict: leave it out")
    if target not in names:
        raise ValueError(f"target = {target!r}: there is no such column: use one of {names}")
    if samples == 0:
        raise ValueError(f"target = {target!r}: it is predicted from samples, and samples = 0: draw some")
