"""`un.Model`: a model of any data, by the conventions of scikit-learn.

    model = un.Model(minutes=2).fit(data)        # or un.fit(data, minutes=2)
    model.sample(1000)                           # the type of the data, with its dtypes

Options are those of the command: `minutes`, `steps`, `preset`, `kinds` of columns, `length` of windows, and any other field
of a `Reading` or a `TrainConfig`.  What fitting finds has a name that ends in an underscore.  scikit-learn is never imported
here; it finds what it asks of an estimator.

Likelihoods are in nats per example, in the coordinates of the model, as in `unnoise evaluate`: floats of an array are
centred and scaled, and so are some numbers of a table; the others are normal scores.
"""

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from unnoise.data.base import BadData
from unnoise.data.table_cells import as_frame
from unnoise.evaluation.page import write_report
from unnoise.guidance.rejection import NothingHeld
from unnoise.guidance.steering import CutShort, Steering, drawn
from unnoise.model import display, plain, storage
from unnoise.model.estimator import Estimator
from unnoise.model.figures import Figures, Page
from unnoise.model.fitting import check_rows, features, made, shows, states_of, trained
from unnoise.model.forms import FileForm, form_of
from unnoise.model.judging import log_density, row_bounds, scored
from unnoise.model.options import in_python
from unnoise.samplers.particles import NoSurvivors
from unnoise.samplers.sample import seed_of
from unnoise.samplers.written import written
from unnoise.shapes import Tree
from unnoise.training.filling import filled
from unnoise.training.run import Run
from unnoise.tree import batch_size


class Model(Estimator):
    """A diffusion model of tables, arrays or texts; `fit` trains it, `sample` draws data of the same type.

    `minutes` or `steps` say how long to train (a minute without an accelerator, else five), `preset` how large a network,
    `seed` (or `random_state`) what is random, `kinds` what columns of a table are, {"zip": "category", "id": "drop"}.
    `progress` shows a bar; unless told, in terminals and notebooks.
    """

    # training

    def fit(self, X: Any, y: Any = None) -> "Model":
        """Train on data; `y` is ignored, and stands here for scikit-learn."""
        folder = storage.fresh_folder()
        try:
            with in_python():
                self._fit(X, folder)
        except BaseException:
            storage.remove(folder)
            raise
        self._own(folder)
        return self

    def _fit(self, data: Any, folder: Path) -> None:
        form, params = form_of(data), self.get_params()
        format, x0, source = states_of(data, form, params, folder)
        check_rows(format, x0)
        run = made(format, x0, params, folder)
        if source is not None:
            source.save(folder)
        outcome = trained(run, x0, shows(self.progress))
        names = features(format, form)
        storage.write_note(folder, form, params, features=names, outcome=vars(outcome))
        self._set(run, x0)

    # what a trained model does

    def sample(
        self,
        n: int = 1,
        given: Any = None,
        *,
        seed: int | None = None,
        out: str | PathLike | None = None,
        steps: int | None = None,
        sampler: str | None = None,
        batch: int | None = None,
        where: str | None = None,
        attempts: int | None = None,
        regex: str | None = None,
        grammar: str | None = None,
        reward: Callable[[Any], Any] | None = None,
        strength: float = 1.0,
        particles: int | None = None,
        guide: float | None = None,
    ) -> Any:
        """`n` samples, of the type that the model was trained on; of a file a frame, an array or a list of strings.

        `given` fixes columns of a table, {"age": 39}.  Without a seed samples are fresh; with one, sample i is a function of
        the seed and i.  With `out` they are written to that file, and its path is returned.

        Rows of a table satisfy the rule `where`, "age >= 18 and income == '>50K'"; there are fewer where so many `attempts`
        (100 for each, 10,000 at least) let too few through.

        Sequences match a regular expression, or are derived by a grammar in the notation of lark; `reward` says a number for
        each of a list of samples, and draws are of exp(strength r) p.  Each sample is then chosen among so many `particles`;
        there are fewer where none of them had any weight (`un.guidance`).

        `guide` leads towards what is given: 1 is as ever, 2 goes twice as far from samples that are told nothing.
        """
        self._check()
        if n < 1:
            raise ValueError(f"n = {n}: draw at least one sample")
        if given is not None and not isinstance(given, dict):
            raise BadData(f"given = {given!r}: pass a dict of columns and values, such as {{'age': 39}}")
        target, known = None if out is None else Path(out), plain.texts(given or {})
        options: dict[str, Any] = {
            "seed": seed,
            "steps": steps,
            "sampler": None if sampler is None else written(sampler),
            "batch": batch,
        }
        with in_python():
            if target is not None:
                self.format_.check_out(target)
            denoiser = self.run_.for_drawing(self._denoiser)
            wish = Steering(regex, grammar, reward, strength, particles, where=where, attempts=attempts, guide=guide)
            options |= {"device": self.device, "given": known, "progress": self._shows(), "telling": self.run_.telling()}
            x, info = drawn(denoiser, self.format_, n, wish, **options)
            known = {**known, **(info.computed or {})}
            if info.failure is not None:
                kept = self._written(x, known, target) if batch_size(x) else None
                raise CutShort(f"{info.failure}; {batch_size(x)} of {n} samples were drawn before", kept)
            if not batch_size(x) and info.rejection is not None:
                raise NothingHeld(
                    f"none of {info.rejection.drawn:,} rows satisfied {where!r}: ask for less, or more attempts"
                )
            if not batch_size(x):
                raise NoSurvivors(f"all particles of all {n} samples had weight 0: take more, or ask for less", x)
        return self._written(x, known, target)

    def _written(self, x: Any, known: dict[str, Any], target: Path | None) -> Any:
        """Samples as they are returned, or the file that they were written to."""
        if target is None:
            return self._back(x, known)
        self.format_.write_given(x, known, target) if known else self.format_.write(x, target)
        return target

    def infill(
        self,
        data: Any,
        mark: str | None = None,
        *,
        seed: int | None = None,
        out: str | PathLike | None = None,
        steps: int | None = None,
        rounds: int = 8,
    ) -> Any:
        """The data with its gaps drawn given the rest: missing cells, NaN, or `mark`, which is _ in texts.

        Rows keep what names them, such as the index of a frame.  With `out`, for a file, another is written, and its path
        returned.
        """
        self._check()
        form = form_of(data)
        with in_python():
            own, file = form.plain(data), isinstance(form, FileForm)
            if out is not None and not file:
                raise BadData(f"out = {out!r}: is for gaps in a file: leave it out, and write what is returned")
            x, fixed = self.format_.gaps(own, mark) if file else plain.gaps(self.format_, own, mark)
            denoiser = self.format_.constrained(self.run_.for_drawing(self.run_.denoiser(which="best")))
            whole, _, _ = filled(denoiser, self.format_, x, fixed, seed_of(seed), steps, self.device, rounds)
            if out is not None:
                self.format_.write_filled(whole, own, Path(out), mark)  # type: ignore[arg-type]
                return Path(out)
            if file:
                return self.format_.seen(whole)
            form = self.form_ if type(form) is type(self.form_) else form
            return form.filled(plain.filled(self.format_, whole, own, mark), data)

    def bound(self, rows: Any, draws: int = 8, seed: int = 0) -> np.ndarray:
        """An upper bound on −log p of each row, in nats, estimated by so many draws of time and noise."""
        x0, _ = self._states(rows)
        return row_bounds(self._denoiser, self.run_, x0, draws, seed, self._shows())

    def likelihood(self, rows: Any, seed: int = 0) -> np.ndarray:
        """log p of each row in nats: by the exact method where the data has one (numbers alone, or few categories), else a
        bound from below by weighted paths, closer than that of `score_samples` and slower."""
        x0, _ = self._states(rows)
        return log_density(self._denoiser, self.run_, x0, seed)

    def score_samples(self, X: Any) -> np.ndarray:
        """Minus the bound: at most log p of each row, in nats."""
        return -self.bound(X)

    def score(self, X: Any, y: Any = None) -> float:
        """The mean of `score_samples`."""
        return float(self.score_samples(X).mean())

    def evaluate(self, test: Any = None, **options: Any) -> Figures:
        """All figures of `unnoise evaluate`, on test data or on the rows that were held out; prints as its table.

        Options are its own: `rows`, `draws`, `samples`, `target`, `exact_rows`, `judge_minutes`, `seed`.
        """
        self._check()
        given = None if test is None else self._states(test)
        options = {"device": self.device, "progress": self._shows(), **options}
        return Figures(scored(self.run_, self._trained_on(), given, options))

    def report(self, path: str | PathLike | None = None) -> Page:
        """Write the run's page, curves and samples; returns its path, which shows itself in a notebook.

        It stands in the folder of the model, which goes with it; with `path` there is a copy.
        """
        self._check()
        shown = self.run_.samples / f"last{self.format_.shown_suffix()}"
        self.sample(64 if shown.suffix == ".png" else 16, seed=self.seed, out=shown)
        page = write_report(self.run_, shown)
        if path is None:
            return Page(page)
        Path(path).write_bytes(page.read_bytes())
        return Page(path)

    def save(self, folder: str | PathLike, data: bool = False, overwrite: bool = False) -> Path:
        """A copy of the model's folder: `un.load` and all commands take it.  With `data`, the rows that it was trained on
        too, which `evaluate` asks for."""
        self._check()
        storage.copied(self.run_.folder, Path(folder), self._trained_on() if data else None, overwrite)
        return Path(folder)

    def __repr__(self) -> str:
        return display.short(self)

    def _repr_html_(self) -> str:
        return display.page(self)

    # within

    def _shows(self) -> bool:
        return shows(self.progress)

    def _back(self, x: Tree, known: dict[str, Any]) -> Any:
        if isinstance(self.form_, FileForm):
            if not any(isinstance(cells, list) for cells in known.values()):
                return self.format_.seen(x)
            table = plain.exact(self.format_, plain.decode(self.format_, x), known)
            return as_frame(self.format_.written_format, table)  # type: ignore[arg-type]
        return self.form_.back(plain.exact(self.format_, plain.decode(self.format_, x), known))

    def _states(self, data: Any) -> tuple[Tree, list[str]]:
        """States of rows of any accepted type, and what was moved to the nearest known value."""
        self._check()
        form = form_of(data)
        with in_python():
            own = form.plain(data)
            found = self.format_.encode_nearest(own) if isinstance(form, FileForm) else plain.encode(self.format_, own)
        if not batch_size(found[0]):
            raise BadData("there are no rows: pass at least one")
        return found

    def _trained_on(self) -> Tree | None:
        if self._rows is None:
            self._rows = storage.kept_rows(self.run_)
        return self._rows


def fit(data: Any, minutes: float | int | None = None, **options: Any) -> Model:
    """A model of data: a path, a frame of pandas or polars, a table of arrow, an array, a tensor, a list of strings, one
    long text, a dict of columns, or a Hugging Face dataset.  Options are those of `Model`."""
    return Model(minutes, **options).fit(data)


def load(folder: str | PathLike, **options: Any) -> Model:
    """The model in a folder that `save` or `unnoise train` made; options such as `device` and `progress` may differ."""
    run = Run.open(Path(folder))
    model = Model(**{**storage.read_note(run.folder)["params"], **options})
    model._set(run, None)
    return model
