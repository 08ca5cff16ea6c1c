"""All figures of a trained run: the bound and the exact likelihood of data, and the quality of samples beside controls.

What the data's kind has no figure for is null, and `..._why` says why.
"""

from pathlib import Path
from typing import Any

from unnoise.data.base import Format
from unnoise.data.files import read_once
from unnoise.data.source_file import NAME, SourceFile
from unnoise.evaluation import file_scores  # noqa: F401  (it registers the scores of the library's own formats)
from unnoise.evaluation.likelihood import bound_figures, bound_on, bound_terms, exact_on
from unnoise.evaluation.scores import Study, chosen, data_figures, has_scores, no_scores, sample_scores
from unnoise.training.data_order import split
from unnoise.training.drawing import device_of, draw
from unnoise.training.run import Run
from unnoise.tree import batch_size
from unnoise.tree import rows as some_rows

__all__ = ["bound_on", "evaluate"]

Sets = tuple[Any, Any, list[str]]  # rows that were trained on, rows to evaluate on, and what was moved in these
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
    sets: Sets | None = None,
    on: str | None = None,
) -> dict[str, Any]:
    """Every figure that the data's kind has.  `trained_on` is the training file, where the run does not know it, or where it
    is elsewhere now.  `sets` are the states themselves, in place of files, and `on` what to call those evaluated on."""
    where, format = device_of(device), run.format()
    _check(format, rows, samples, target)
    denoiser = run.denoiser(which="best").to(where)
    scored = samples != 0 and has_scores(format)
    train, unseen, moved = sets or _sets(run, data, trained_on, scored)
    x0 = some_rows(unseen, chosen(batch_size(unseen), rows, seed))
    result: dict[str, Any] = {"on": on or (str(data) if data is not None else "held-out rows")}
    result |= {"moved": moved} if moved else {}
    options = run.objective_options()
    terms = bound_terms(denoiser, x0, draws, seed, progress=progress, options=options, log_fill=format.log_fill)
    result |= bound_figures(terms, denoiser.process.space.dimension)
    result |= data_figures(format, x0, result["bound"])
    count = EXACT_ROWS[where.type] if exact_rows is None else exact_rows
    exact: tuple[dict[str, Any] | None, str | None] = (None, "--exact-rows 0")
    if count > 0:
        exact = exact_on(denoiser, format, some_rows(x0, slice(count)), seed, options=options)
    result |= {"exact": exact[0]} if exact[0] is not None else {"exact": None, "exact_why": exact[1]}
    if not scored:
        return result | (no_scores(format) if samples != 0 else {})
    study = Study(
        train=train,
        unseen=unseen,
        draw=lambda n: draw(denoiser, format, n, seed=seed, device=device, progress=progress)[0],
        samples=samples,
        seed=seed,
        where=where,
        folder=run.folder,
        trained_with=run.config.train.seed,
        target=target,
        judge_minutes=judge_minutes,
        progress=progress,
    )
    return result | sample_scores(format, study)


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


def _check(format: Format, rows: int, samples: int | None, target: str | None) -> None:
    """What was asked for, before any work; a column to predict must be one of a table whose samples are drawn."""
    if rows < 1:
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
