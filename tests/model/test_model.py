"""The front door: fit, sample, infill, likelihoods, figures, saving; what scikit-learn asks; what cannot be done."""

import copy
import pickle
import subprocess
import sys
import threading

import numpy as np
import pandas as pd
import pytest

import unnoise as un
from unnoise.cli import main
from unnoise.data.base import BadData
from unnoise.evaluation.likelihood import bound_on
from unnoise.evaluation.scores import chosen
from unnoise.model import NotFitted
from unnoise.training.data_order import split
from unnoise.training.safe_files import RunError
from unnoise.training.trainer import Trainer
from unnoise.tree import rows as some_rows

N = 80
QUICK = {"steps": 4, "progress": False, "device": "cpu", "panels": 0, "validation_draws": 1}


def people():
    i = np.arange(N)
    return pd.DataFrame(
        {
            "age": 18 + i % 60,
            "pay": (1000 + 37.25 * (i * i % 211)).round(2),
            "job": pd.Categorical(np.array(["cook", "clerk", "nurse"])[i % 3]),
            "since": pd.date_range("2020-01-01", periods=N, freq="D"),
            "left": pd.array(np.where(i % 5 == 0, None, i % 2 == 0), dtype="boolean"),
        }
    )


@pytest.fixture(scope="module")
def model():
    return un.fit(people(), **QUICK)


@pytest.fixture(scope="module")
def numbers():
    array = np.random.default_rng(0).normal([3, -1], [2, 0.5], (N, 2)).astype(np.float32)
    return un.fit(array, **QUICK), array


def test_samples_are_frames_like_the_data(model):
    drawn, real = model.sample(7, seed=3, steps=4), people()
    assert type(drawn) is pd.DataFrame and len(drawn) == 7 and drawn.index.equals(pd.RangeIndex(7))
    assert drawn.dtypes.equals(real.dtypes)
    assert drawn["age"].between(18, 77).all() and set(drawn["job"]) <= {"cook", "clerk", "nurse"}


def test_a_seed_decides_and_without_one_samples_are_fresh(model):
    assert model.sample(5, seed=1, steps=4).equals(model.sample(5, seed=1, steps=4))
    assert model.sample(9, seed=1, steps=4).head(5).equals(model.sample(5, seed=1, steps=4))  # sample by sample
    assert not model.sample(5, steps=4).equals(model.sample(5, steps=4))


def test_given_values_stand_in_every_row(model):
    day = pd.Timestamp("2020-02-03")
    drawn = model.sample(6, given={"pay": 1333.33, "job": "nurse", "since": day, "left": None}, steps=4)
    assert (drawn["pay"] == 1333.33).all() and (drawn["job"] == "nurse").all()
    assert (drawn["since"] == day).all() and drawn["left"].isna().all()
    assert drawn.dtypes.equals(people().dtypes)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"salary": 3}, "no such column"),
        ({"age": 900}, "is not among|outside the range"),
        ({"job": "king"}, "'king' is no known value"),
        ("age", "pass a dict"),
    ],
)
def test_what_cannot_be_given(model, given, words):
    with pytest.raises(BadData, match=words):
        model.sample(2, given=given)


def test_samples_go_to_a_file(model, tmp_path):
    path = model.sample(5, {"job": "cook"}, seed=1, steps=4, out=tmp_path / "new.csv")
    assert path == tmp_path / "new.csv"
    frame = pd.read_csv(path)
    assert list(frame) == list(people()) and len(frame) == 5 and (frame["job"] == "cook").all()
    with pytest.raises(BadData, match="rename it"):
        model.sample(5, out=tmp_path / "new.docx")


def test_gaps_of_a_frame_are_filled(model):
    real = people().head(6)
    holes = real.set_axis(list("uvwxyz"), axis=0)
    holes.loc["u", "pay"], holes.loc["v", "job"], holes.loc["w", "age"] = None, None, None
    whole = model.infill(holes, seed=1, steps=4)
    assert list(whole.index) == list("uvwxyz") and list(whole) == list(holes) and not whole.isna().any(axis=None)
    assert whole.dtypes.equals(real.dtypes)
    for name in real:
        kept = holes[name].notna().to_numpy()
        assert (whole[name].to_numpy()[kept] == real[name].to_numpy()[kept]).all()
    again = model.infill(holes, seed=1, steps=4)
    assert again.equals(whole)


def test_gaps_of_strings_and_arrays_are_filled(numbers):
    texts = ["abab", "baba", "aabb"] * 8
    trained = un.fit(texts, **QUICK)
    filled = trained.infill(["a_ab", "ba"], seed=0, steps=4)
    assert filled[0][0] == "a" and filled[0][2:] == "ab" and filled[0][1] in "ab" and filled[1] == "ba"
    assert trained.infill(["a?ab"], "?", seed=0, steps=4) == [filled[0]]
    model, array = numbers
    holes = array[:4].copy()
    holes[1, 0] = np.nan
    whole = model.infill(holes, seed=0, steps=4)
    assert whole.dtype == array.dtype and np.isfinite(whole).all()
    assert np.array_equal(np.delete(whole.ravel(), 2), np.delete(array[:4].ravel(), 2))


def test_the_bound_of_rows_is_that_of_the_evaluation(numbers):
    model, array = numbers
    rows = model.bound(array[:20], draws=3, seed=5)
    options, (x0, _) = model.run_.objective_options(), model._states(array[:20])
    whole = bound_on(model.run_.denoiser(which="best"), x0, 3, 5, options=options)
    assert rows.shape == (20,) and rows.mean() == pytest.approx(whole["bound"], rel=1e-6)
    np.testing.assert_allclose(model.score_samples(array[:5]), -model.bound(array[:5]))
    assert model.score(array[:5]) == pytest.approx(model.score_samples(array[:5]).mean())


def test_likelihoods_of_numbers_are_those_of_the_flow(numbers):
    model, array = numbers
    x0, _ = model._states(array[:6])
    flow = un.ProbabilityFlow(rtol=1e-4, atol=1e-4)
    exact, _ = un.likelihood(model.run_.denoiser(which="best"), x0, flow, seed=0)
    np.testing.assert_allclose(model.likelihood(array[:6]), exact.numpy(), atol=1e-4)


@pytest.mark.conformance
def test_likelihoods_of_tables_are_by_weighted_paths(model):
    """Of the rows alone: what stands where a number is missing is taken off."""
    rows = people().head(2)
    x0, _ = model._states(rows)
    paths, _ = un.likelihood(model.run_.denoiser(which="best"), x0, seed=0)
    np.testing.assert_allclose(model.likelihood(rows), (paths - model.format_.log_fill(x0)).numpy(), rtol=1e-6)


def test_likelihoods_of_few_categories_sum_to_one():
    array = np.array([[0, 1], [1, 0], [1, 1], [0, 0]] * 10)
    model = un.fit(array, categories=True, **QUICK)
    every = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    assert np.exp(model.likelihood(every)).sum() == pytest.approx(1, abs=1e-6)


def test_rows_of_another_type_are_scored_alike(model, tmp_path):
    rows = people().head(5)
    want = model.bound(rows)
    np.testing.assert_array_equal(model.bound({name: rows[name].tolist() for name in rows}), want)
    rows.to_parquet(tmp_path / "rows.parquet")
    np.testing.assert_array_equal(model.bound(tmp_path / "rows.parquet"), want)
    with pytest.raises(BadData, match="trained on a table"):
        model.bound(np.zeros((3, 5)))


def test_evaluation_prints_as_the_commands_table(model):
    figures = model.evaluate(samples=0, draws=2)
    held = split(N, 0.1, 0)[1]
    assert figures["on"] == "held-out rows" and figures["examples"] == len(held)
    x0 = some_rows(model._rows, held[chosen(len(held), len(held), 0)])  # in the order of the evaluation
    options = {"options": model.run_.objective_options(), "log_fill": model.format_.log_fill}
    again = bound_on(model.run_.denoiser(which="best"), x0, 2, 0, **options)
    assert figures["bound"] == pytest.approx(again["bound"], rel=1e-6)
    text = str(figures)
    assert "bound" in text and "held-out rows" in text and text in figures._repr_html_().replace("&#x27;", "'")
    assert model.evaluate(people().head(9), samples=0, draws=2)["examples"] == 9


@pytest.mark.conformance
def test_evaluation_scores_samples(model):
    figures = model.evaluate(samples=30, draws=1, exact_rows=0)
    assert {"samples", "control_unseen_rows", "control_independent_columns"} <= set(figures)


def test_a_report(numbers, tmp_path):
    model, _ = numbers
    page = model.report(tmp_path / "page.html")
    assert page == tmp_path / "page.html" and "<iframe" in page._repr_html_()
    assert page.read_text() == (model.run_.folder / "report.html").read_text() and "<h1>" in page.read_text()


def test_saved_models_sample_the_same_in_another_process(model, tmp_path):
    folder = model.save(tmp_path / "saved")
    code = (
        "import sys, unnoise as un; from pathlib import Path\n"
        f"un.load({str(folder)!r}).sample(6, {{'age': 30}}, seed=4, steps=4).to_pickle({str(tmp_path / 'drawn.pkl')!r})\n"
        "sys.exit('sklearn' in sys.modules or 'polars' in sys.modules)"  # they are asked for by nobody
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    drawn = pd.read_pickle(tmp_path / "drawn.pkl")
    pd.testing.assert_frame_equal(drawn, model.sample(6, {"age": 30}, seed=4, steps=4), check_exact=True)


def test_saved_models_are_runs(model, tmp_path, capsys):
    folder = model.save(tmp_path / "saved")
    with pytest.raises(SystemExit) as end:
        main(["sample", str(folder), "-n", "3", "--out", str(tmp_path / "new.csv"), "--seed", "2", "--steps", "4"])
    assert end.value.code == 0
    model.sample(3, seed=2, steps=4, out=tmp_path / "mine.csv")
    assert (tmp_path / "new.csv").read_text() == (tmp_path / "mine.csv").read_text()


def test_rows_are_saved_only_if_asked(model, tmp_path):
    bare = un.load(model.save(tmp_path / "bare"))
    with pytest.raises(ValueError, match="data=True"):
        bare.evaluate(samples=0)
    assert bare.evaluate(people().head(3), samples=0, draws=1)["examples"] == 3
    whole = un.load(model.save(tmp_path / "whole", data=True))
    assert whole.evaluate(samples=0, draws=2)["bound"] == pytest.approx(model.evaluate(samples=0, draws=2)["bound"])
    assert not (whole.save(tmp_path / "again") / "rows.safetensors").exists()
    with pytest.raises(RunError, match="overwrite"):
        model.save(tmp_path / "whole")
    with pytest.raises(RunError, match="where the model is already"):
        whole.save(tmp_path / "whole", overwrite=True)
    model.save(tmp_path / "whole", overwrite=True)
    assert not (tmp_path / "whole" / "rows.safetensors").exists()


def test_loaded_models_know_their_options(model, tmp_path):
    loaded = un.load(model.save(tmp_path / "saved"))
    assert loaded.get_params() == model.get_params()
    assert un.load(tmp_path / "saved", progress=True).progress is True
    assert list(loaded.feature_names_in_) == list(people()) and loaded.n_features_in_ == 5
    assert repr(loaded) == repr(model)


def test_files_and_runs_of_the_command(tmp_path):
    frame = people()[["age", "job"]]
    frame.to_csv(tmp_path / "people.csv", index=False)
    model = un.fit(tmp_path / "people.csv", **QUICK, kinds={"age": "number"})
    assert [line.kind for line in model.format_.lines()] == ["number", "category"]
    assert type(model.sample(3, steps=4)) is pd.DataFrame and list(model.sample(3, steps=4)) == ["age", "job"]
    loaded = un.load(model.save(tmp_path / "saved"))
    assert loaded.evaluate(samples=0, draws=1)["examples"] == N // 10  # the file is where it was
    with pytest.raises(SystemExit):
        main(["train", str(tmp_path / "people.csv"), "--out", str(tmp_path / "run"), "--steps", "2", "--json"])
    assert un.load(tmp_path / "run").sample(2, steps=4).dtypes["age"] == "int64"
    (tmp_path / "gaps.csv").write_text("age,job\n30,\n,cook\n")
    whole = model.infill(tmp_path / "gaps.csv", steps=4)
    assert whole["age"][0] == 30 and whole["job"][1] == "cook" and not whole.isna().any(axis=None)
    path = model.infill(tmp_path / "gaps.csv", seed=0, out=tmp_path / "full.csv", steps=4)
    assert path.read_text().splitlines()[1].startswith("30,") and path.read_text().splitlines()[2].endswith(",cook")
    with pytest.raises(BadData, match="is for gaps in a file"):
        model.infill(frame, out=tmp_path / "full.csv")


def test_text_files_give_strings(tmp_path):
    (tmp_path / "lines.txt").write_text("abab\nbaba\naabb\n" * 10)
    model = un.fit(str(tmp_path / "lines.txt"), **QUICK, padded=True)
    assert all(isinstance(text, str) for text in model.sample(3, steps=4))


def test_a_pickle_is_the_model(model):
    for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert again.run_.folder != model.run_.folder
        assert again.sample(4, seed=0, steps=4).equals(model.sample(4, seed=0, steps=4))
    assert pickle.loads(pickle.dumps(un.Model(2))).get_params() == un.Model(2).get_params()


def test_the_folder_goes_with_the_model():
    model = un.fit(np.arange(40) % 4, **QUICK)
    first = model.run_.folder
    assert first.is_dir()
    second = model.fit(np.arange(40) % 4).run_.folder
    assert not first.parent.exists() and second.is_dir()
    del model
    assert not second.parent.exists()


def test_what_is_not_fitted_says_so():
    model = un.Model(minutes=2, preset="tiny")
    for call in (model.sample, model.evaluate, model.report, lambda: model.save("x"), lambda: model.bound(np.zeros(4))):
        with pytest.raises(NotFitted, match="not fitted yet"):
            call()
    assert repr(model) == "Model(minutes=2, preset='tiny')" and "Model(" in model._repr_html_()


def test_options_are_named():
    with pytest.raises(TypeError, match="did you mean 'length'"):
        un.Model(lenght=3)
    with pytest.raises(BadData, match="length: says nothing of a table|length"):
        un.fit(people(), length=3, **QUICK)
    with pytest.raises(BadData, match="kinds"):
        un.fit(np.zeros((9, 2)), kinds={"a": "number"}, **QUICK)


def test_too_few_rows_and_errors_in_words_of_python(tmp_path):
    with pytest.raises(BadData, match="3 examples are too few to train on, which takes 4"):
        un.fit(people().head(3), **QUICK)
    names = pd.DataFrame({"name": [f"Ann {i}" for i in range(N)], "x": range(N)})
    with pytest.raises(BadData, match="no column is left to model") as error:
        un.fit(names, **QUICK)
    assert "--" not in str(error.value)
    assert "keep=[column]" in str(error.value)
    model = un.fit(names, keep=["x"], **QUICK)
    assert list(model.sample(2, steps=4)) == ["name", "x"] and model.sample(2, steps=4)["name"].isna().all()
    assert "note: not in the model, empty in samples: 'name'; keep=[column] models one" in repr(model)
    with pytest.raises(BadData, match=r"train with keep=\['name'\]"):
        model.sample(2, given={"name": "Ann 1"})
    with pytest.raises(BadData, match=r"keep=\['x'\]"):
        un.fit(names, keep="x", **QUICK)
    assert list(un.fit(names, kinds={"name": "drop"}, keep=["x"], **QUICK).sample(2, steps=4)) == ["x"]


def test_options_of_a_kind_of_file(tmp_path):
    with pd.ExcelWriter(tmp_path / "book.xlsx") as book:
        people().to_excel(book, sheet_name="first", index=False)
        people()[["age"]].to_excel(book, sheet_name="ages", index=False)
    model = un.fit(tmp_path / "book.xlsx", options={"sheet": "ages"}, **QUICK)
    assert list(model.sample(2, steps=4)) == ["age"]
    assert un.Model(**model.get_params()).get_params()["options"] == {"sheet": "ages"}


def test_an_interrupted_training_keeps_the_best(monkeypatch):
    update = Trainer._update

    def interrupted(self, stream):
        update(self, stream)
        if self.step == 3:
            self.asked.yes = True  # as Ctrl-C makes it

    monkeypatch.setattr(Trainer, "_update", interrupted)
    with pytest.warns(UserWarning, match="interrupted after 3 steps"):
        model = un.fit(people(), **{**QUICK, "steps": 50})
    assert model.outcome_["reason"] == "interrupted" and len(model.sample(2, steps=4)) == 2


def test_an_interrupt_that_raises(monkeypatch):
    """Outside the main thread nothing is noted: the last saved state is there, or nothing is.  Tables have one from the
    start: the linear law of their rows."""
    update = Trainer._update

    def raising(self, stream):
        if self.step == 3:
            raise KeyboardInterrupt
        update(self, stream)

    monkeypatch.setattr(Trainer, "_update", raising)
    letters = np.arange(40) % 4
    with pytest.raises(KeyboardInterrupt):
        un.fit(letters, **QUICK)
    for data, options in ((letters, {"save_every": 2}), (people(), {})):
        with pytest.warns(UserWarning, match="interrupted after 3 steps"):
            assert len(un.fit(data, **QUICK, **options).sample(2, steps=4)) == 2


def test_fitting_in_a_thread():
    made = []
    worker = threading.Thread(target=lambda: made.append(un.fit(np.arange(40) % 4, **QUICK)))
    worker.start()
    worker.join(60)
    assert made[0].sample(3, steps=4).shape == (3,)


def test_random_state_is_a_seed():
    array = np.arange(40) % 4
    want = un.fit(array, seed=5, **QUICK).sample(4, seed=0, steps=4)
    assert np.array_equal(un.fit(array, random_state=5, **QUICK).sample(4, seed=0, steps=4), want)
    generators = [np.random.default_rng(1), np.random.RandomState(1)]
    assert all(un.fit(array, random_state=state, **QUICK).run_.config.train.seed > 0 for state in generators)


# -- scikit-learn ---------------------------------------------------------------------------------------------------


def test_cloning_and_parameters():
    base = pytest.importorskip("sklearn.base")
    model = un.Model(minutes=1, batch_size=16, kinds={"a": "number"})
    again = base.clone(model)
    assert again is not model and again.get_params() == model.get_params()
    assert again.set_params(steps=3, lr=0.01).get_params()["lr"] == 0.01 and again.steps == 3
    assert "lr" not in model.get_params()
    with pytest.raises(TypeError, match="no option"):
        model.set_params(nothing=1)


def test_the_last_step_of_a_pipeline():
    pipeline = pytest.importorskip("sklearn.pipeline")
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    array = np.random.default_rng(0).normal(size=(N, 3))
    line = pipeline.Pipeline([("scale", preprocessing.StandardScaler()), ("model", un.Model(**QUICK))])
    line.fit(array)
    inner = preprocessing.StandardScaler().fit(array).transform(array)
    np.testing.assert_allclose(line.score_samples(array), line["model"].score_samples(inner))
    assert line.score(array) == pytest.approx(line["model"].score(inner))
    assert line["model"].n_features_in_ == 3 and "Model" in repr(line) and "Model" in line._repr_html_()
    validation = pytest.importorskip("sklearn.utils.validation")
    validation.check_is_fitted(line["model"])
    with pytest.raises(NotFitted.__bases__):  # scikit-learn's own error is of these two
        validation.check_is_fitted(un.Model())


def test_cross_validation():
    selection = pytest.importorskip("sklearn.model_selection")
    scores = selection.cross_val_score(un.Model(**QUICK), people(), cv=3)
    folds = selection.KFold(3).split(people())
    train, test = next(iter(folds))
    own = un.Model(**QUICK).fit(people().iloc[train]).score(people().iloc[test])
    assert scores.shape == (3,) and scores[0] == pytest.approx(own)
    search = selection.GridSearchCV(un.Model(**QUICK), {"lr": [1e-3]}, cv=2)
    assert search.fit(people()).best_estimator_.run_.config.train.lr == 1e-3


# -- truths ---------------------------------------------------------------------------------------------------------


@pytest.mark.conformance
def test_a_gaussian_of_two_columns():
    """Ten seconds of training on 4000 rows of correlation 0.8.

    The rows' own correlation errs by 0.006 (one standard error), that of as many samples by as much again; 0.03 leaves 0.02
    to training.  Means and deviations of the rows err by 0.016 and 0.011, and 0.1 and 0.06 are allowed.  The flow's density
    in the model's coordinates is that of the data times the scales; 0.05 nats are allowed on average over fresh rows.
    """
    rho, mean, scale = 0.8, np.array([3.0, -1.0]), np.array([2.0, 0.5])
    covariance = np.array([[1, rho], [rho, 1]]) * np.outer(scale, scale)
    rng = np.random.default_rng(0)
    model = un.fit(rng.multivariate_normal(mean, covariance, 4000), steps=1000, progress=False, device="cpu")
    drawn = model.sample(4000, seed=0)
    assert abs(np.corrcoef(drawn.T)[0, 1] - rho) < 0.03
    assert np.abs((drawn.mean(0) - mean) / scale).max() < 0.1 and np.abs(drawn.std(0) / scale - 1).max() < 0.06
    fresh = rng.multivariate_normal(mean, covariance, 64)
    white = np.linalg.solve(np.linalg.cholesky(covariance), (fresh - mean).T)
    log_p = -0.5 * (white**2).sum(0) - np.log(2 * np.pi) - 0.5 * np.log(np.linalg.det(covariance))
    assert abs((model.likelihood(fresh) - np.log(model.format_.scale).sum() - log_p).mean()) < 0.05


@pytest.mark.conformance
def test_a_gaussian_frame_and_its_conditional():
    """The same as a frame: given one column, the other has its conditional mean and spread, within what training errs."""
    rho, rng = 0.8, np.random.default_rng(1)
    x = rng.normal(size=3000)
    frame = pd.DataFrame({"x": x, "y": rho * x + np.sqrt(1 - rho**2) * rng.normal(size=3000)})
    model = un.fit(frame, steps=600, progress=False, device="cpu")
    drawn = model.sample(1500, seed=0)
    assert abs(drawn.corr().iloc[0, 1] - rho) < 0.05
    given = model.sample(500, {"x": 1.0}, seed=1)["y"]
    assert abs(given.mean() - rho) < 0.25 and abs(given.std() - 0.6) < 0.15  # of 0 and 1 where nothing is given
