"""What the figures of samples say, in words, with the figures that they rest on.

A table's samples are judged by the two-sample score of all of them (1: they cannot be told from training rows), by trend and
utility on the way from independent columns (0) to real rows (1), and by how close they stand to training rows.
"""

from typing import Any

LEVELS = (  # the least two-sample score, its name, and what it means
    (0.95, "as real", "are hardly told from real rows"),
    (0.80, "close", "are close to real rows, and some can be told from them"),
    (0.50, "off", "differ from real rows: often told from them"),
    (-1.0, "far", "are far from real rows: mostly told from them"),
)


def share_of_way(ours: float | None, independent: float | None, real: float | None) -> float | None:
    """Where a score stands between that of independent columns (0) and of real rows (1); None where these are alike."""
    if ours is None or independent is None or real is None or abs(real - independent) < 0.01:
        return None
    return (ours - independent) / (real - independent)


def of_table(result: dict[str, Any]) -> dict[str, Any]:
    samples, unseen, loose = (result[name] for name in ("samples", "control_unseen_rows", "control_independent_columns"))
    few = result.get("samples_as_many_as_unseen", samples)
    few_loose = result.get("control_independent_as_many_as_unseen", loose)
    level, words = _level(samples["two_sample"], samples["two_sample_se"])
    told = [f"samples {words}"] if words else ["too few rows to tell samples from real ones"]
    if samples["two_sample"] is not None:
        told[0] += f" (two-sample {_of(samples, 'two_sample')}; independent columns {_of(loose, 'two_sample')}"
        told[0] += f"; unseen rows {_of(unseen, 'two_sample')})"
    found: dict[str, Any] = {"level": level}
    if few["trend"] is not None:
        found["trend_share"] = share_of_way(few["trend"], few_loose["trend"], unseen["trend"])
        told.append(
            f"trend {few['trend']:.3f} of {unseen['trend']:.3f} by unseen rows ({few_loose['trend']:.3f} independent)"
        )
    if samples.get("utility") is not None:
        real, none = (result[name].get("utility") for name in ("control_training_rows", "control_independent_columns"))
        found["utility_share"] = share_of_way(samples["utility"], none, real)
        told.append(
            f"to predict {result['target']}: {samples['utility']:.3f} of {_number(real)} by real rows ({_number(none)})"
        )
    columns = result["columns"]
    weakest = min(columns, key=lambda name: columns[name]["samples"] - columns[name]["unseen_rows"])
    found["weakest_column"] = weakest
    ours, theirs = (columns[weakest][name] for name in ("samples", "unseen_rows"))
    told.append(f"the weakest column: {weakest} ({ours:.2f}, unseen rows {theirs:.2f})")
    found["repeats_training_rows"] = _repeats(few, unseen)
    if found["repeats_training_rows"]:
        told.append("samples stand closer to training rows than unseen ones do: it repeats what it has seen")
    if result.get("conditioned"):
        told.append(result["conditioned"]["words"])
    return found | {"words": "; ".join(told)}


def _level(score: float | None, error: float | None) -> tuple[str | None, str]:
    if score is None:
        return None, ""
    slack = 2 * (error or 0.0)
    reached = next(entry for entry in LEVELS if score >= entry[0])
    if reached is not LEVELS[0] and score + slack >= 1:  # so few rows that it may as well be 1
        return LEVELS[0][1], "cannot be told from real rows by so few"
    return reached[1], reached[2]


def _of(figures: dict[str, Any], name: str) -> str:
    return "-" if figures[name] is None else f"{figures[name]:.2f} ± {figures[name + '_se']:.2f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _repeats(samples: dict[str, Any], unseen: dict[str, Any]) -> bool:
    """More copies than unseen rows have, or half their distance to the closest training row."""
    closer = unseen["closest"] > 0 and samples["closest"] < 0.5 * unseen["closest"]
    return bool(closer or samples["copies"] > 2 * unseen["copies"] + 0.01)


def of_sequences(result: dict[str, Any]) -> dict[str, Any]:
    """By the longest n-grams and the judge, on the way from independent symbols to unseen rows."""
    sets = [result[name] for name in ("samples", "control_independent_symbols", "control_unseen_rows")]
    grams = sorted(name for name in sets[0] if name.startswith("ngram_distance"))
    names = [*grams[-1:], *(["judge_bits"] if "judge_bits" in sets[0] else [])]
    shares = {name: share_of_way(*(figures[name] for figures in sets)) for name in names}
    known = [share for share in shares.values() if share is not None]
    if not known:
        return {"level": None, "words": "independent symbols and unseen rows are alike to these scores: they tell nothing"}
    least = min(known)
    bounds = ((0.95, "as real", "as real rows"), (0.8, "close", "close to real rows"), (0.5, "off", "off real rows"))
    level, words = next(((name, text) for low, name, text in bounds if least >= low), ("far", "far from real rows"))
    told = [f"samples are {words}: {100 * least:.0f} % of the way from independent symbols to unseen rows"]
    for name in names:
        ours, none, real = (figures[name] for figures in sets)
        told.append(f"{name.replace('_', ' ')} {ours:.3g} of {real:.3g} by unseen rows ({none:.3g} independent)")
    repeats = sets[0]["copies"] > 2 * sets[2]["copies"] + 0.01
    told += ["samples are training rows more often than unseen ones are"] * repeats
    return {"level": level, "shares": shares, "repeats_training_rows": repeats, "words": "; ".join(told)}
