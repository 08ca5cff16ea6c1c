"""How good synthetic rows are, beside real ones.

    shape        1 - total variation (labels) or 1 - Kolmogorov-Smirnov (numbers), mean over columns
    trend        pairs of columns: 1 - |difference of Pearson correlations|/2 for two numbers, else 1 - total variation of
                 the contingency tables, numbers cut into ten bins of equal width on the real column's range
    two-sample   1 - 2 max(0, AUC - 1/2) of a gradient boosting that tells real rows from synthetic ones, by
                 cross-validation: 1 where it cannot, 0 where it always can
    utility      of a gradient boosting that predicts a column of real test rows, trained on the synthetic rows: AUC, or R^2
                 for a column of many numbers
    copies       share of synthetic rows that are rows of the training file
    closest      the distance of a synthetic row to the closest training row, median and fifth percentile: much smaller than
                 those of unseen real rows where a model repeats what it has seen

Dates and decimals are numbers.  A missing value is a label of its own in a column of labels, and in a column of numbers
    shape        a point apart: the largest gap of P(value <= x) or of P(value <= x, or missing), shares of all rows
    trend        a bin of its own; of two numbers no more than 1 - total variation of which of the two are missing
    closest      at distance 1 from every value and 0 from another missing one

All compare with controls: real rows that the model has not seen, and rows whose columns are shuffled independently.  The
fewer the rows, the lower shape and trend even of real ones: compare sets of one size.
"""

from dataclasses import dataclass, field, fields
from itertools import combinations
from typing import Any

import numpy as np

BINS = 10
ROWS = 50_000  # at most, of each side, given to a classifier
SMALL = 10**6  # cells of a table that one thread is enough for
FOLDS = 3
LEAF = 20  # rows in a leaf of the gradient boosting, at least: with fewer than two leaves of rows it predicts a constant
LEAST = LEAF * FOLDS // (FOLDS - 1)  # rows of each side that make two leaves of what a fold leaves
CLASSES = 10  # a column of numbers with at most so many values is predicted as classes
MISSING = "\0"  # the label of missing values, in front of all others


def _pandas():
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError("scores of tables need pandas and scikit-learn: pip install 'unnoise[all]'") from error
    return pd


@dataclass
class TableScore:
    """Larger is better, but for copies; `closest` should be that of unseen rows.  What is None has its reason in `why`."""

    rows: int
    shape: float
    trend: float | None
    two_sample: float | None
    two_sample_se: float | None
    copies: float
    closest: float
    closest_low: float
    utility: float | None = None
    utility_is: str | None = None
    why: dict[str, str] = field(default_factory=dict)

    def json(self) -> dict[str, Any]:
        figures = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "why"}
        if self.utility_is is None:
            del figures["utility_is"]
            if "utility" not in self.why:  # it was not asked for
                del figures["utility"]
        return figures | {f"{name}_why": text for name, text in self.why.items()}


def is_number(column: Any) -> bool:
    """Numbers, moments of time, and decimals, which pandas holds as objects."""
    types = _pandas().api.types
    if types.is_object_dtype(column):
        present = column.dropna()
        return len(present) > 0 and types.infer_dtype(present) == "decimal"
    return types.is_datetime64_any_dtype(column) or (types.is_numeric_dtype(column) and not types.is_bool_dtype(column))


def plain(*frames: Any) -> list[Any]:
    """Frames of the same columns as floats, with NaN for missing values, and texts; the first one says which is which."""
    number = {name: is_number(frames[0][name]) for name in frames[0].columns}
    frame_of = _pandas().DataFrame
    return [frame_of({n: (_floats if number[n] else _texts)(frame[n]) for n in number}) for frame in frames]


def _floats(column: Any) -> Any:
    pd = _pandas()
    if pd.api.types.is_datetime64_any_dtype(column):
        return (column - pd.Timestamp(0, tz=column.dt.tz)) / pd.Timedelta(1, "s")
    return column.astype(float)


def _texts(column: Any) -> Any:
    return column.astype(str).where(column.notna(), MISSING)


def shape(real: Any, fake: Any) -> float:
    """The mean over columns."""
    real, fake = plain(real, fake)
    return float(np.mean([column_shape(real[name], fake[name]) for name in real.columns]))


def column_shape(real: Any, fake: Any) -> float:
    real, fake = (frame.iloc[:, 0] for frame in plain(real.to_frame("column"), fake.to_frame("column")))
    if not is_number(real):
        return similarity(real, fake)
    a, b = (np.sort(column.dropna().to_numpy()) for column in (real, fake))
    places = np.concatenate([a, b])
    gap = np.searchsorted(a, places, side="right") / len(real) - np.searchsorted(b, places, side="right") / len(fake)
    missing = real.isna().mean() - fake.isna().mean()
    return 1 - float(np.abs(np.concatenate([gap, gap + missing, [missing]])).max())


def similarity(real: Any, fake: Any) -> float:
    """1 - total variation of two laws of labels."""
    p, q = (column.value_counts(normalize=True) for column in (real, fake))
    return 1 - 0.5 * float(p.subtract(q, fill_value=0).abs().sum())


def trend(real: Any, fake: Any) -> float | None:
    """The mean over pairs of columns; None where there is one column."""
    real, fake = plain(real, fake)
    labels = binned(real, fake)
    pairs = [_pair(real, fake, labels, a, b) for a, b in combinations(real.columns, 2)]
    return float(np.mean(pairs)) if pairs else None


def binned(real: Any, fake: Any) -> dict[str, tuple[Any, Any]]:
    """Columns as labels: numbers in bins of the real column's range."""
    pd, out = _pandas(), {}
    for name in real.columns:
        columns = tuple(frame[name].reset_index(drop=True) for frame in (real, fake))
        if is_number(columns[0]):
            low, high = (columns[0].min(), columns[0].max()) if columns[0].notna().any() else (0.0, 0.0)
            edges = np.linspace(low, high, BINS + 1)[1:-1]
            columns = tuple(pd.Series(np.digitize(c, edges)).astype(str).where(c.notna(), MISSING) for c in columns)
        out[name] = columns
    return out


def _pair(real: Any, fake: Any, labels: dict[str, tuple[Any, Any]], a: str, b: str) -> float:
    if not (is_number(real[a]) and is_number(real[b])):
        return similarity(*(labels[a][i].str.cat(labels[b][i], sep="\x1f") for i in (0, 1)))
    with np.errstate(invalid="ignore", divide="ignore"):
        r, f = real[a].corr(real[b]), fake[a].corr(fake[b])
    absent = similarity(*(2 * frame[a].isna() + frame[b].isna() for frame in (real, fake)))
    return min(1 - abs(np.nan_to_num(r) - np.nan_to_num(f)) / 2, absent)


def features(frames: list[Any]) -> list[np.ndarray]:
    """Frames as numbers for trees: labels by their codes over all frames."""
    pd = _pandas()
    both, out = pd.concat(plain(*frames), ignore_index=True), {}
    for name in both.columns:
        column = both[name]
        out[name] = column if is_number(column) else column.astype("category").cat.codes.astype(float)
    table, sizes = np.column_stack(list(out.values())), [len(frame) for frame in frames]
    return np.split(table, np.cumsum(sizes)[:-1])


def _boosting(trees: int, seed: int, classes: bool = True):
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    method = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    return method(max_iter=trees, max_depth=6, min_samples_leaf=LEAF, early_stopping=False, random_state=seed)


def one_thread(cells: int) -> Any:
    """Trees of a small table grow fastest on one thread: several wait for each other, very long on a busy machine."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1 if cells < SMALL else None, user_api="openmp")


def two_sample(
    real: Any, fake: Any, seed: int = 0, trees: int = 200, most: int = ROWS
) -> tuple[float, float] | tuple[None, None]:
    """1 - 2 max(0, AUC - 1/2), three folds, and its standard error; None where rows are fewer than LEAST on a side."""
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    n = min(len(real), len(fake), most)
    if n < LEAST:
        return None, None
    a, b = (frame.sample(n, random_state=seed) if len(frame) > n else frame for frame in (real, fake))
    x = np.concatenate(features([a, b]))
    y = np.repeat([0, 1], [len(a), len(b)])
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    with one_thread(x.size):
        said = cross_val_predict(_boosting(trees, seed), x, y, cv=folds, method="predict_proba")[:, 1]
    auc, error = auc_and_error(y, said)
    return 1 - 2 * max(0.0, auc - 0.5), 2 * error


def auc_and_error(truth: np.ndarray, said: np.ndarray) -> tuple[float, float]:
    """The AUC of out-of-fold scores, and its standard error.

    DeLong's formula (1988) takes the scores for independent, but rows of two folds help to score one another.  So its
    variance is multiplied by 1 + FOLDS x (test rows / training rows of a fold), as Nadeau and Bengio (2003) do.  Over drawn
    data of 50 to 1000 rows a side the spread of the AUC was 0.7 to 1.0 times this error.
    """
    series, below = _pandas().Series, []  # of each row, the share of the other side that scores lower
    for own in (truth == 1, truth == 0):
        rank, among_own = series(said).rank().to_numpy()[own], series(said[own]).rank().to_numpy()
        below.append((rank - among_own) / (~own).sum())
    variance = sum(share.var(ddof=1) / len(share) for share in below)
    return float(below[0].mean()), float((variance * (1 + FOLDS / (FOLDS - 1))) ** 0.5)


def utility(fake: Any, test: Any, target: str, seed: int = 0, trees: int = 300) -> tuple[float | None, str]:
    """How well a model of synthetic rows predicts a column of real ones, and what this figure is; or None, and why.

    R^2 for numbers of more than ten values; else AUC, of one class against the rest where there are more than two, mean over
    the classes that both sides have.  Rows whose target is missing are left out.
    """
    from sklearn.metrics import r2_score, roc_auc_score

    if len(fake.columns) < 2:
        return None, "there is no other column to predict it from"
    fake, test = (frame.dropna(subset=[target]) for frame in (fake, test))
    if len(fake) < 2 * LEAF:
        return None, f"{len(fake)} rows to learn from, and a gradient boosting needs {2 * LEAF}"
    test_y, fake_y = (frame[target] for frame in plain(test[[target]], fake[[target]]))
    train, held = features([fake.drop(columns=target), test.drop(columns=target)])
    if is_number(test_y) and len(set(test_y) | set(fake_y)) > CLASSES:
        if test_y.nunique() < 2:
            return None, f"the real rows have {test_y.nunique()} values of it: R^2 needs two"
        with one_thread(train.size):
            model = _boosting(trees, seed, classes=False).fit(train, fake_y)
            return float(r2_score(test_y, model.predict(held))), "R^2"
    y, truth = fake_y.astype(str), test_y.astype(str)
    if y.nunique() < 2 or truth.nunique() < 2:
        return None, f"classes of it: {y.nunique()} in the synthetic rows, {truth.nunique()} in the real ones; both need two"
    with one_thread(train.size):
        model = _boosting(trees, seed).fit(train, y)
        said, classes = model.predict_proba(held), list(model.classes_)
    every = set(classes) | set(truth)
    shared = [k for k, name in enumerate(classes) if name in set(truth)]
    if not shared:
        return None, "the synthetic rows and the real ones have no class of it in common"
    if len(every) == 2:
        return float(roc_auc_score(truth == classes[1], said[:, 1])), "AUC"
    mean = float(np.mean([roc_auc_score(truth == classes[k], said[:, k]) for k in shared]))
    return mean, f"AUC of one class against the rest, mean over {len(shared)} of {len(every)} classes"


def copies(train: Any, fake: Any) -> float:
    """The share of rows that stand in the training file as they are."""
    train, fake = (frame.astype(object).where(frame.notna(), MISSING).to_numpy().tolist() for frame in plain(train, fake))
    known = set(map(tuple, train))
    return float(np.mean([tuple(row) in known for row in fake]))


def closest(train: Any, fake: Any, most: int = 1000, seed: int = 0) -> np.ndarray:
    """The distance of each synthetic row to the closest training row, in [0, 1]: numbers by ranks, labels by equality."""
    fake = fake.sample(most, random_state=seed) if len(fake) > most else fake
    a, b = features([train, fake])
    numeric = np.array([is_number(train[name]) for name in train.columns])
    ranked = [_ranks(a[:, k], b[:, k]) for k in np.flatnonzero(numeric)]
    out = np.empty(len(b))
    for i in range(len(b)):
        distance = (a[:, ~numeric] != b[i, ~numeric]).sum(1).astype(float)
        for here, there in ranked:
            distance += np.minimum(np.abs(here - there[i]), 1)
        out[i] = distance.min() / len(numeric)
    return out


def _ranks(a: np.ndarray, b: np.ndarray) -> list[np.ndarray]:
    """Ranks in a of both, in [0, 1]; missing values stand at 2, further than 1 from all of them."""
    order = np.sort(a[~np.isnan(a)])
    return [np.where(np.isnan(v), 2.0, np.searchsorted(order, v) / max(1, len(order))) for v in (a, b)]


def shuffled(frame: Any, seed: int = 0) -> Any:
    """Independent columns: the baseline that keeps every shape and no trend."""
    rng = np.random.default_rng(seed)
    return frame.apply(lambda column: column.to_numpy()[rng.permutation(len(column))]).astype(frame.dtypes.to_dict())


def score(
    train: Any, fake: Any, test: Any | None = None, target: str | None = None, seed: int = 0, most: int = ROWS
) -> TableScore:
    """Every figure of synthetic rows, against the training file; utility needs real test rows and a column to predict.
    At most so many rows of each side go to the two-sample test."""
    middle, low = np.quantile(closest(train, fake, seed=seed), [0.5, 0.05])
    pairs, (apart, error) = trend(train, fake), two_sample(train, fake, seed, most=most)
    useful, what = (None, None) if test is None or target is None else utility(fake, test, target, seed)
    why: dict[str, str] = {}
    if pairs is None:
        why["trend"] = "there is one column, and no pair"
    if apart is None:
        why["two_sample"] = (
            f"{min(len(train), len(fake))} rows a side, and a gradient boosting needs {LEAST} to tell anything"
        )
    if useful is None and what is not None:
        why["utility"] = what
    return TableScore(
        rows=len(fake),
        shape=shape(train, fake),
        trend=pairs,
        two_sample=apart,
        two_sample_se=error,
        copies=copies(train, fake),
        closest=float(middle),
        closest_low=float(low),
        utility=useful,
        utility_is=None if useful is None else what,
        why=why,
    )
