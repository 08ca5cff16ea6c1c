"""What makes a model an estimator: options that can be read and set, what fitting leaves, and a pickle of both.

scikit-learn is never imported by itself; it finds here what it asks of an estimator.
"""

import weakref
from pathlib import Path
from typing import Any

import numpy as np

from unnoise.model import storage
from unnoise.model.options import check_names
from unnoise.shapes import Tree
from unnoise.training.run import Run

NAMED = ("minutes", "steps", "preset", "seed", "random_state", "kinds", "device", "progress")  # the rest are `options`


class NotFitted(ValueError, AttributeError):
    """A model that was asked for something before it was fitted."""


class Estimator:
    """Options, and the trained run if there is one."""

    def __init__(
        self,
        minutes: float | int | None = None,
        *,
        steps: int | None = None,
        preset: str | None = None,
        seed: int = 0,
        random_state: Any = None,
        kinds: Any = None,
        device: str = "auto",
        progress: bool | None = None,
        **options: Any,
    ):
        check_names(options)
        self.minutes, self.steps, self.preset, self.seed = minutes, steps, preset, seed
        self.random_state, self.kinds, self.device, self.progress = random_state, kinds, device, progress
        self.options = options

    # what scikit-learn asks of an estimator

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {**{name: getattr(self, name) for name in NAMED}, **self.options}

    def set_params(self, **params: Any) -> "Estimator":
        check_names(params)
        for name, value in params.items():
            if name in NAMED:
                setattr(self, name, value)
            else:
                self.options = {**self.options, name: value}
        return self

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type="density_estimator", target_tags=TargetTags(required=False))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "run_")

    # what fitting leaves

    def _set(self, run: Run, x0: Tree | None) -> None:
        """What is known of a model that is trained."""
        note = storage.read_note(run.folder)
        self.run_, self.format_, self.form_ = run, run.format(), storage.form_in(note)
        self.outcome_: dict[str, Any] = note.get("outcome", {})
        self._rows, self._denoiser = x0, run.denoiser(which="best")
        self._drawn: Tree | None = None  # for a notebook
        features = note.get("features") or {}
        for name in ("n_features_in_", "feature_names_in_"):
            vars(self).pop(name, None)
        if "count" in features:
            self.n_features_in_: int = features["count"]
        if "names" in features:
            self.feature_names_in_ = np.array(features["names"], dtype=object)

    def _own(self, folder: Path) -> None:
        """The folder is this model's alone, and goes with it."""
        if (before := vars(self).pop("_end", None)) is not None:
            before()
        self._end = weakref.finalize(self, storage.remove, folder)

    def _check(self) -> None:
        if not hasattr(self, "run_"):
            raise NotFitted("this model is not fitted yet: call fit(data), or load one by un.load(folder)")

    def __getstate__(self) -> dict[str, Any]:
        """A pickled model is its options and its folder."""
        state: dict[str, Any] = {"params": self.get_params()}
        if hasattr(self, "run_"):
            state |= {"folder": storage.packed(self.run_.folder), "rows": self._rows}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state["params"])  # type: ignore[misc]
        if "folder" in state:
            folder = storage.unpacked(state["folder"])
            self._set(Run.open(folder), state["rows"])
            self._own(folder)
