"""How good synthetic rows are, beside real ones.

    shape        1 - total variation (categories) or 1 - Kolmogorov-Smirnov (numbers), mean over columns
    trend        pairs of columns: 1 - |difference of Pearson correlations|/2 for two numbers, else 1 - total variation of
                 the contingency tables, numbers cut into ten bins of equal width on the real column's range
    two-sample   1 - 2 max(0, AUC - 1/2) of a gradient boosting that tells real rows from synthetic ones, by
                 cross-validation: 1 where it cannot, 0 where it always can
    utility      AUC on real test rows of a gradient boosting that predicts a column, trained on the synthetic rows
    copies       share of synthetic rows that are rows of the training file
    closest      the distance of a synthetic row to the closest training row, median and fifth percentile: much smaller than
                 those of unseen real rows where a model repeats what it has seen

All compare with controls: the same numbers of real rows that the model has not seen, and of rows whose columns are shuffled
independently.
"""

from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np

BINS = 10
ROWS = 50_000  # at most, of each side, given to a classifier


def _pandas():
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError("scores of tables need pandas and scikit-learn: pip install 'unnoise[data]'") from error
    return pd


@dataclass
class TableScore:
    """Larger is better, but for copies; `closest` should be that of unseen rows."""

    shape: float
    trend: float
    two_sample: float
    copies: float
    closest: float
    closest_low: float
    utility: float | None = None

    def json(self) -> dict[str, Any]:
        return asdict(self)


def is_number(column: Any) -> bool:
    pd = _pandas()
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def shape(real: Any, fake: Any) -> float:
    return float(np.mean([column_shape(real[name], fake[name]) for name in real.columns]))


def column_shape(real: Any, fake: Any) -> float:
    if is_number(real):
        a, b = (np.sort(np.asarray(c.dropna(), dtype=float)) for c in (real, fake))
        if not len(a) or not len(b):
            return float(len(a) == len(b))
        places = np.concatenate([a, b])
        gap = np.searchsorted(a, places, side="right") / len(a) - np.searchsorted(b, places, side="right") / len(b)
        return 1 - float(np.abs(gap).max())
    return similarity(real.astype(str), fake.astype(str))


def similarity(real: Any, fake: Any) -> float:
    """1 - total variation of two laws of labels."""
    p, q = (column.value_counts(normalize=True) for column in (real, fake))
    return 1 - 0.5 * float(p.subtract(q, fill_value=0).abs().sum())


def trend(real: Any, fake: Any) -> float:
    """The mean over pairs of columns."""
    labels = _labels(real, fake)
    return float(np.mean([_pair(real, fake, labels, a, b) for a, b in combinations(real.columns, 2)]))


def _labels(real: Any, fake: Any) -> dict[str, tuple[Any, Any]]:
    """Columns as labels: numbers in bins of the real column's range."""
    pd, out = _pandas(), {}
    for name in real.columns:
        if is_number(real[name]):
            edges = np.linspace(float(real[name].min()), float(real[name].max()), BINS + 1)[1:-1]
            out[name] = tuple(pd.Series(np.digitize(c.astype(float), edges)).astype(str) for c in (real[name], fake[name]))
        else:
            out[name] = tuple(c.astype(str).reset_index(drop=True) for c in (real[name], fake[name]))
    return out


def _pair(real: Any, fake: Any, labels: dict[str, tuple[Any, Any]], a: str, b: str) -> float:
    if is_number(real[a]) and is_number(real[b]):
        with np.errstate(invalid="ignore", divide="ignore"):
            r, f = real[a].corr(real[b]), fake[a].corr(fake[b])
        return 1 - abs(np.nan_to_num(r) - np.nan_to_num(f)) / 2
    return similarity(*(labels[a][i].str.cat(labels[b][i], sep="\x1f") for i in (0, 1)))


def features(frames: list[Any]) -> list[np.ndarray]:
    """Frames as numbers for trees: labels by their codes over all frames (categories are marked by `categorical`)."""
    pd = _pandas()
    both, out = pd.concat(frames, ignore_index=True), {}
    for name in both.columns:
        column = both[name]
        out[name] = (
            column.astype(float) if is_number(column) else column.astype(str).astype("category").cat.codes.astype(float)
        )
    table, sizes = np.column_stack(list(out.values())), [len(frame) for frame in frames]
    return np.split(table, np.cumsum(sizes)[:-1])


def _boosting(trees: int, seed: int):
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(max_iter=trees, max_depth=6, early_stopping=False, random_state=seed)


def two_sample(real: Any, fake: Any, seed: int = 0, trees: int = 200) -> float:
    """1 - 2 max(0, AUC - 1/2), three folds."""
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    n = min(len(real), len(fake), ROWS)
    a, b = (frame.sample(n, random_state=seed) if len(frame) > n else frame for frame in (real, fake))
    x = np.concatenate(features([a, b]))
    y = np.repeat([0, 1], [len(a), len(b)])
    folds = StratifiedKFold(3, shuffle=True, random_state=seed)
    said = cross_val_predict(_boosting(trees, seed), x, y, cv=folds, method="predict_proba")[:, 1]
    return 1 - 2 * max(0.0, float(roc_auc_score(y, said)) - 0.5)


def utility(fake: Any, test: Any, target: str, seed: int = 0, trees: int = 300) -> float:
    """AUC on real rows of a model trained on synthetic ones (one against the rest where there are several classes)."""
    from sklearn.metrics import roc_auc_score

    train, held = features([fake.drop(columns=target), test.drop(columns=target)])
    y, truth = fake[target].astype(str), test[target].astype(str)
    model = _boosting(trees, seed).fit(train, y)
    said = model.predict_proba(held)
    if len(model.classes_) == 2:
        return float(roc_auc_score(truth == model.classes_[1], said[:, 1]))
    return float(roc_auc_score(truth, said, multi_class="ovr", labels=model.classes_))


def copies(train: Any, fake: Any) -> float:
    """The share of rows that stand in the training file as they are."""
    known = set(map(tuple, train.astype(str).to_numpy().tolist()))
    return float(np.mean([tuple(row) in known for row in fake.astype(str).to_numpy().tolist()]))


def closest(train: Any, fake: Any, most: int = 1000, seed: int = 0) -> np.ndarray:
    """The distance of each synthetic row to the closest training row, in [0, 1]: numbers by ranks, labels by equality."""
    fake = fake.sample(most, random_state=seed) if len(fake) > most else fake
    a, b = features([train, fake])
    numeric = np.array([is_number(train[name]) for name in train.columns])
    ranked = []
    for k in np.flatnonzero(numeric):
        order = np.sort(a[:, k])
        ranked.append([np.searchsorted(order, v[:, k]) / len(order) for v in (a, b)])
    out = np.empty(len(b))
    for i in range(len(b)):
        distance = (a[:, ~numeric] != b[i, ~numeric]).sum(1).astype(float)
        for here, there in ranked:
            distance += np.abs(here - there[i])
        out[i] = distance.min() / len(numeric)
    return out


def shuffled(frame: Any, seed: int = 0) -> Any:
    """Independent columns: the baseline that keeps every shape and no trend."""
    rng = np.random.default_rng(seed)
    return frame.apply(lambda column: column.to_numpy()[rng.permutation(len(column))]).astype(frame.dtypes.to_dict())


def score(train: Any, fake: Any, test: Any | None = None, target: str | None = None, seed: int = 0) -> TableScore:
    """Every figure of synthetic rows, against the training file; utility needs real test rows and a column to predict."""
    middle, low = np.quantile(closest(train, fake, seed=seed), [0.5, 0.05])
    return TableScore(
        shape(train, fake),
        trend(train, fake),
        two_sample(train, fake, seed),
        copies(train, fake),
        float(middle),
        float(low),
        None if test is None or target is None else utility(fake, test, target, seed),
    )
