"""Scores of tables: known answers, what they must notice, and the command's figures."""

import json
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from unnoise.cli import main
from unnoise.data import read
from unnoise.evaluation import report, tables
from unnoise.evaluation.shown import shown
from unnoise.training.recipes import recipe
from unnoise.training.run import Run
from unnoise.training.trainer import train


def frame(n: int, seed: int, link: float = 0.9) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    y = link * x + (1 - link**2) ** 0.5 * rng.normal(size=n)
    c = np.where(rng.uniform(size=n) < 1 / (1 + np.exp(-2 * x)), "a", "b")
    return pd.DataFrame({"x": x, "y": y, "c": c, "d": rng.choice(["p", "q", "r"], size=n, p=[0.5, 0.3, 0.2])})


REAL, FRESH = frame(3000, 0), frame(3000, 1)


def test_shape_of_known_columns():
    labels = pd.Series(["a"] * 60 + ["b"] * 40), pd.Series(["a"] * 50 + ["b"] * 30 + ["z"] * 20)
    assert tables.similarity(*labels) == pytest.approx(0.8)
    numbers = pd.Series([1.0, 2.0, 3.0, 4.0]), pd.Series([1.0, 2.0, 3.0, 10.0, 10.0, 10.0, 10.0, 10.0])
    assert tables.column_shape(*numbers) == pytest.approx(1 - 5 / 8)
    assert tables.shape(REAL, REAL) == 1 and tables.trend(REAL, REAL) == pytest.approx(1)


def test_trend_of_two_numbers_is_that_of_their_correlation():
    real, fake = frame(4000, 2)[["x", "y"]], frame(4000, 3, link=0.1)[["x", "y"]]
    expected = 1 - abs(real.x.corr(real.y) - fake.x.corr(fake.y)) / 2
    assert tables.trend(real, fake) == pytest.approx(expected) and expected < 0.65


def test_independent_columns_keep_shapes_and_lose_trends():
    loose = tables.shuffled(REAL)
    assert tables.shape(REAL, loose) == pytest.approx(1) and (loose.dtypes == REAL.dtypes).all()
    assert tables.trend(REAL, loose) < tables.trend(REAL, FRESH) - 0.05
    assert tables.two_sample(REAL, loose, trees=40)[0] < 0.6 < 0.9 < tables.two_sample(REAL, FRESH, trees=40)[0]


def test_a_table_that_is_another_is_told_apart():
    shifted = FRESH.assign(x=FRESH.x + 3)
    assert tables.two_sample(REAL, shifted, trees=40)[0] < 0.05


def moments(seed: int, step: str, most: int, zone: str | None = None) -> pd.Series:
    ticks = np.random.default_rng(seed).integers(0, most, 2000)
    return pd.Series(pd.Timestamp("2020-01-01", tz=zone) + pd.to_timedelta(ticks, unit=step))


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_dates_are_numbers(zone):
    real, fake = ({"t": moments(seed, "s", 10**8, zone), "x": FRESH.x[:2000]} for seed in (0, 1))
    plain = [{"t": moments(seed, "s", 10**8).astype("int64"), "x": FRESH.x[:2000]} for seed in (0, 1)]
    frames, numbers = [pd.DataFrame(d) for d in (real, fake)], [pd.DataFrame(d) for d in plain]
    assert tables.shape(*frames) == pytest.approx(tables.shape(*numbers)) and tables.shape(*frames) > 0.95
    assert tables.trend(*frames) == pytest.approx(tables.trend(*numbers)) and tables.trend(*frames) > 0.95
    np.testing.assert_allclose(tables.closest(*frames, most=50), tables.closest(*numbers, most=50))
    for a, b in zip(tables.features(frames), tables.features(numbers), strict=True):
        assert np.array_equal(a[:, 0].argsort(), b[:, 0].argsort())
    days = [moments(seed, "D", 2000) for seed in (0, 1)]
    assert tables.column_shape(*days) > 0.95 > 0.6 > tables.column_shape(days[0], days[1] + pd.Timedelta(1000, "D"))
    missing = days[0].mask(np.arange(2000) < 500)
    assert tables.column_shape(days[0], missing) == pytest.approx(0.75) and tables.copies(frames[0], frames[0]) == 1


def test_decimals_are_numbers():
    real, fake = (pd.Series([Decimal(round(v * 100)) / 100 for v in frame.x]) for frame in (REAL, FRESH))
    assert real.dtype == object and tables.is_number(real) and not tables.is_number(REAL.d.astype(object))
    floats = real.astype(float), fake.astype(float)
    assert tables.column_shape(real, fake) == tables.column_shape(*floats) > 0.95
    assert tables.column_shape(real, pd.Series([None] * 5, dtype=object)) == 0.0


def test_shape_with_missing_numbers():
    """A point apart from the line: 1 just where shares and laws agree, and alike for numbers and for their negatives."""
    x = pd.Series(np.arange(100.0))
    half = x.mask(np.arange(100) % 2 == 0)
    assert tables.column_shape(x, half) == pytest.approx(0.5) == tables.column_shape(half, x)
    assert tables.column_shape(half, pd.concat([half, half])) == 1
    low, high = x.mask(x >= 50), x.mask(x < 50)
    assert tables.column_shape(low, high) == tables.column_shape(-low, -high) == pytest.approx(0.5)
    some = x.mask(x < 20)  # a fifth is missing, of the small ones
    for sign in (1, -1):
        assert tables.column_shape(sign * x, sign * some) == pytest.approx(0.8)
    none = pd.Series([np.nan] * 7)
    assert tables.column_shape(none, none) == 1 and tables.column_shape(none, x) == 0 == tables.column_shape(x, none)


def test_missing_values_are_no_largest_number_and_no_absent_label():
    count = pd.Series(np.arange(1000) % 100, dtype="Int64")
    gone = pd.DataFrame({"x": count.mask(count < 50), "c": "p"})
    top = gone.fillna({"x": 99})
    assert tables.trend(gone, top) == pytest.approx(0.5) and tables.trend(gone, gone) == 1
    rows = pd.DataFrame({"x": pd.Series([None, 99], dtype="Int64"), "c": "p"})
    known = gone[gone.x.notna()]
    assert tables.closest(known, rows).tolist() == [0.5, 0] and tables.closest(rows[:1], rows).tolist() == [0, 0.5]
    assert tables.copies(known, gone) == 0.5 and tables.copies(gone, gone) == 1
    words = pd.Series(["a", "a", "b", "b"])
    assert tables.column_shape(words, words.mask(words == "b")) == 0.5
    flags = pd.Series([True, True, False, None], dtype="boolean")
    assert tables.column_shape(flags, flags[:3]) == pytest.approx(0.75)


def test_trend_of_two_numbers_sees_which_are_missing():
    together = REAL[["x", "y"]].mask(REAL.d == "p")  # both or none
    apart = REAL[["x", "y"]].assign(x=REAL.x.mask(REAL.d == "p"), y=REAL.y.mask(np.roll(REAL.d == "p", 1)))
    share, both = together.x.isna().mean(), (apart.x.isna() & apart.y.isna()).mean()
    assert tables.trend(together, apart) == pytest.approx(1 - 2 * (share - both)) and tables.trend(together, together) == 1


def test_the_error_of_the_two_sample_score():
    """DeLong's by its definition, widened; and wide enough over data drawn again, yet far from what says nothing."""
    rng = np.random.default_rng(0)
    said, truth = rng.normal(size=50).round(1), np.repeat([1, 0], [20, 30])
    wins = (np.sign(said[:20, None] - said[None, 20:]) + 1) / 2
    variance = wins.mean(1).var(ddof=1) / 20 + wins.mean(0).var(ddof=1) / 30
    auc, error = tables.auc_and_error(truth, said)
    assert auc == pytest.approx(roc_auc_score(truth, said)) and error == pytest.approx((2.5 * variance) ** 0.5)
    found = []
    for _ in range(20):
        real, fake = (pd.DataFrame(rng.normal(size=(60, 2)) + [shift, 0], columns=["x", "y"]) for shift in (0, 1.5))
        found.append(tables.two_sample(real, fake, trees=10))
    value, error = np.array(found).T
    assert 0.5 < value.std(ddof=1) / error.mean() < 1.2


def test_rows_too_few_to_tell():
    """Leaves hold 20 rows: of 29 rows a side no fold leaves two, so that all rows score the same."""
    far = REAL.assign(x=REAL.x + 99)
    assert tables.two_sample(REAL, far[:29]) == (None, None) and tables.two_sample(REAL, far[:30])[0] < 0.2
    score = tables.score(REAL[["x"]], FRESH[["x"]][:5]).json()
    assert score["trend"] is score["two_sample"] is score["two_sample_se"] is None
    assert score["trend_why"] == "there is one column, and no pair" and score["two_sample_why"].startswith("5 rows a side")
    json.dumps(score, allow_nan=False)


def test_utility_is_that_of_the_rows_it_is_trained_on():
    (good, what), (bad, _) = (tables.utility(frame, FRESH, "c", trees=40) for frame in (REAL, tables.shuffled(REAL)))
    assert good > 0.8 and abs(bad - 0.5) < 0.08 and what == "AUC"
    several, what = tables.utility(REAL, FRESH, "d", trees=10)
    assert abs(several - 0.5) < 0.08 and "3 of 3 classes" in what


def test_utility_is_the_auc_of_plain_boosting():
    """Of two classes, as words or as two numbers; of several, that of scikit-learn's own average."""
    x, held = (frame[["x", "y"]].assign(c=frame.c == "a") for frame in (REAL, FRESH))
    options = {"max_iter": 30, "max_depth": 6, "early_stopping": False, "random_state": 0}
    model = HistGradientBoostingClassifier(**options).fit(x, REAL.d)
    expected = roc_auc_score(FRESH.d, model.predict_proba(held), multi_class="ovr")
    assert tables.utility(x.assign(d=REAL.d), held.assign(d=FRESH.d), "d", trees=30)[0] == pytest.approx(expected)
    x, held = (frame[["x", "y"]] for frame in (REAL, FRESH))
    model = HistGradientBoostingClassifier(**options).fit(x, REAL.c)
    expected = roc_auc_score(FRESH.c == "b", model.predict_proba(held)[:, 1])
    for values in ({"a": "a", "b": "b"}, {"a": 0, "b": 1}):
        real, test = x.assign(c=REAL.c.map(values)), held.assign(c=FRESH.c.map(values))
        assert tables.utility(real, test, "c", trees=30) == (expected, "AUC")
        real.loc[:9, "c"] = test.loc[:9, "c"] = None  # left out
        assert tables.utility(real, test, "c", trees=30)[0] == tables.utility(real[10:], test[10:], "c", trees=30)[0]


def test_utility_of_numbers_is_r_squared():
    for target in (
        lambda frame: frame.y,
        lambda frame: pd.Timestamp("2020-01-01") + pd.to_timedelta(frame.y * 1e5, unit="s"),
    ):
        real, test = (frame[["x"]].assign(y=target(frame)) for frame in (REAL, FRESH))
        found, what = tables.utility(real, test, "y", trees=20)
        assert what == "R^2" and 0.7 < found < 0.82  # 0.81 is the best there is
    assert tables.utility(real, test[:1], "y", trees=1) == (None, "the real rows have 1 values of it: R^2 needs two")


def test_utility_where_classes_differ():
    two, three = FRESH[FRESH.d != "r"], FRESH.assign(d=np.where(FRESH.x < -0.5, "p", np.where(FRESH.x < 0.5, "q", "r")))
    known = REAL.assign(d=np.where(REAL.x < -0.5, "p", np.where(REAL.x < 0.5, "q", "r")))
    found, what = tables.utility(known[known.d != "r"], three, "d", trees=20)
    assert "mean over 2 of 3 classes" in what and 0.7 < found < 0.9  # p is known from q and r, q is not from r
    found, what = tables.utility(known, three[three.d != "r"], "d", trees=20)
    assert "mean over 2 of 3 classes" in what and found > 0.99
    for fake, test in ((REAL.assign(d="p"), two), (REAL, two.assign(d="p"))):
        found, what = tables.utility(fake, test, "d", trees=1)
        assert found is None and "both need two" in what
    assert "in common" in tables.utility(REAL, two.assign(d=two.d + "!"), "d", trees=1)[1]
    assert "no other column" in tables.utility(REAL[["d"]], two[["d"]], "d")[1]
    assert "39 rows" in tables.utility(REAL[:39], two, "d")[1]
    score = tables.score(REAL[:40].assign(d="p"), REAL[:40].assign(d="p"), two, "d").json()
    assert score["utility"] is None and "both need two" in score["utility_why"] and "utility_is" not in score


def test_copies_and_distances():
    fake = pd.concat([FRESH.head(90), REAL.head(10)], ignore_index=True)
    assert tables.copies(REAL, fake) == pytest.approx(0.1)
    distance = tables.closest(REAL, fake)
    assert np.all(distance[90:] == 0) and distance[:90].min() > 0
    assert tables.closest(REAL, FRESH, most=50).shape == (50,)
    honest, repeats = tables.score(REAL, FRESH), tables.score(REAL, REAL)
    assert repeats.closest == repeats.closest_low == 0 < honest.closest_low < honest.closest


def test_all_figures_at_once():
    score = tables.score(REAL, FRESH, frame(1000, 5), "c").json()
    figures = {"rows", "shape", "trend", "two_sample", "two_sample_se", "copies", "closest", "closest_low", "utility"}
    assert set(score) == figures | {"utility_is"} and score["copies"] == 0 and score["rows"] == 3000
    assert 0 < score["two_sample_se"] < 0.05 and score["utility_is"] == "AUC"


@pytest.fixture
def run(tmp_path) -> Run:
    """Of a table with dates in a zone, which frames hold as texts."""
    table = frame(1600, 0).round(3).assign(t=moments(0, "s", 10**8)[:1600].dt.strftime("%Y-%m-%dT%H:%M:%S+02:00"))
    table.loc[::9, "y"] = np.nan
    table.to_csv(tmp_path / "a.csv", index=False)
    form, x0 = read(tmp_path / "a.csv")
    run = Run.create(tmp_path / "run", recipe(form, 1600, "tiny", steps=1))
    (run.folder / "data.json").write_text(json.dumps({"path": str(tmp_path / "a.csv")}) + "\n")
    train(run, x0)
    return run


def test_samples_and_controls_of_one_size(run, monkeypatch):
    """Samples that are the file's last rows, as few as are asked for."""
    x0 = run.format().encode(run.folder.parent / "a.csv")
    monkeypatch.setattr(report, "draw", lambda d, f, n, **_: ({name: leaf[-n:] for name, leaf in x0.items()}, None))
    monkeypatch.setattr(report, "fill", lambda d, x, known, **_: (x, None))
    result = report.evaluate(run, rows=4, draws=1, samples=400, exact_rows=0, target="c", device="cpu")
    sets = (
        "samples", "samples_as_many_as_unseen", "control_unseen_rows", "control_independent_as_many_as_unseen",
        "control_independent_columns", "control_training_rows",
    )  # fmt: skip
    assert [result[name]["rows"] for name in sets] == [400, 160, 160, 160, 400, 400]
    assert (
        abs(result["control_independent_columns"]["utility"] - 0.5) < 0.15 < result["control_training_rows"]["utility"] - 0.5
    )
    assert result["conditioned"]["rms_in_errors"] == 0  # nothing was drawn anew
    assert "hardly told" in result["verdict"]["words"] or "cannot be told" in result["verdict"]["words"]
    assert result["samples"]["utility_is"] == "AUC" and result["samples"]["utility"] > 0.6  # on the held-out rows
    unseen, loose = result["control_unseen_rows"], result["control_independent_columns"]
    # 160 rows beside 1440 are off by 0.06 (+-0.012) in the mean of five columns; dates not read as such, by 0.2 more
    assert unseen["shape"] > 0.85 and unseen["closest"] < 0.2 and loose["shape"] > 0.9  # of dates too
    head = next(line for line in shown(result).splitlines() if line.endswith("training rows"))
    assert head.split()[:8] == ["samples", *sets[1].split("_"), "unseen", "rows"]
    assert "verdict: samples" in shown(result)
    fewer = report.evaluate(run, rows=4, draws=1, samples=20, exact_rows=0, device="cpu")
    assert fewer["control_unseen_rows"]["rows"] == fewer["samples"]["rows"] == 20 and sets[1] not in fewer
    told = shown(fewer)
    assert told.count("two sample why") == 1 and "20 rows a side" in told
    row = next(line for line in told.splitlines() if line.startswith("two sample  "))
    assert row.split() == ["two", "sample", "-", "-", "-", "-"]


def test_a_target_that_is_none(run, capsys, monkeypatch):
    monkeypatch.setattr(report, "bound_terms", None)  # nothing is worked out before
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", str(run.folder), "--target", "nosuch", "--device", "cpu"])
    told = capsys.readouterr().err
    assert ended.value.code == 2 and told.startswith(
        "unnoise: target = 'nosuch': there is no such column: use one of ['x', "
    )
    assert len(told.splitlines()) == 1
    with pytest.raises(ValueError, match="samples = 0"):
        report.evaluate(run, samples=0, target="c", device="cpu")
