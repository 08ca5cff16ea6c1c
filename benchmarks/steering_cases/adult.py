"""Rows of a table under rules (`unnoise sample --where`).

For each rule as many rows are drawn as there are real test rows that satisfy it (--most at most).  Scores are of the columns
that the rule does not name, against the real rows of the test file that satisfy it:

    under the rule    drawn with --where
    real              rows of the training file that satisfy the rule: what is left to gain
    without           rows of the model that nothing was asked of: what the rule is worth
    the model         the model's rows without a rule, against test rows without one, all columns but those: what it knows

`probability` is that of the rule under the model as the command estimates it, beside the share of real rows.  Two-sample and
trend are those of `unnoise.evaluation.tables`.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from steering_cases import common
from unnoise.data.table import Table
from unnoise.evaluation import tables
from unnoise.guidance.rules import ColumnRule
from unnoise.shapes import Tree

RULES = (
    "age >= 18 and income == '>50K'",
    "sex == 'Female' and education_num >= 13 and hours_per_week > 40",
    "capital_gain > 0 and marital_status != 'Married-civ-spouse'",
)
PICTURED = ("age", "education_num", "relationship", "hours_per_week")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--where", action="append", help="a rule; may be repeated")
    parser.add_argument("--most", type=int, default=2000, help="rows of a rule")


def some(frame: pd.DataFrame, count: int, seed: int) -> pd.DataFrame:
    return frame.sample(min(count, len(frame)), random_state=seed).reset_index(drop=True)


def compared(real: pd.DataFrame, fake: pd.DataFrame, columns: list[str], seed: int) -> dict[str, Any]:
    """Trend and two-sample score of some columns, sets of one size."""
    count = min(len(real), len(fake))
    a, b = (some(frame[columns], count, seed) for frame in (real, fake))
    apart, error = tables.two_sample(a, b, seed)
    return {"rows": count, "trend": tables.trend(a, b), "two_sample": apart, "two_sample_se": error}


def of_rule(
    text: str, form: Table, states: dict[str, Tree], frames: dict[str, pd.DataFrame], options: argparse.Namespace
) -> tuple[dict[str, Any], pd.DataFrame, pd.DataFrame]:
    """Its figures, the rows that were drawn under it, and the real ones."""
    rule = ColumnRule(text, form)
    held = {name: np.asarray(rule.holds(x)) for name, x in states.items()}
    real = {name: frames[name][held[name]] for name in ("train", "test")}
    count = min(len(real["test"]), len(real["train"]), options.most)
    out = options.out / "rows.csv"
    said = common.unnoise("sample", options.run, "-n", count, "--where", text, "--seed", options.seed, "--out", out)
    drawn_states = form.encode(out)
    drawn = form.frame(drawn_states)
    others = [name for name in drawn.columns if name not in rule.names]
    seed = options.seed
    known = some(real["test"], count, seed)
    share, error = common.share(held["test"])
    found = {
        "rows": len(drawn),
        "satisfy the rule": float(np.mean(np.asarray(rule.holds(drawn_states)))),
        "probability": float(np.exp(said["log_normaliser"])),
        "probability_error": float(np.exp(said["log_normaliser"]) * said["log_normaliser_error"]),
        "share of real rows": share,
        "share_se": error,
        "way": said["rule_by"],
        "acceptance": said["acceptance"],
        "network calls": said["calls"],
        "under the rule": compared(known, drawn, others, seed),
        "real": compared(known, some(real["train"], count, seed + 1), others, seed),
        "without": compared(known, some(frames["model"], count, seed), others, seed),
        "the model": compared(some(frames["test"], count, seed), some(frames["model"], count, seed), others, seed),
    }
    return found, drawn, known


def shown(options: argparse.Namespace) -> tuple[dict[str, Any], Figure]:
    run = common.trained(options, options.train)
    form = run.format()
    assert isinstance(form, Table)
    plain = options.out / "plain.csv"
    common.unnoise("sample", options.run, "-n", options.most, "--seed", options.seed + 1, "--out", plain)
    states = {"train": form.encode(options.train), "test": form.encode_nearest(options.test)[0]}
    frames = {name: form.frame(x) for name, x in states.items()} | {"model": form.frame(form.encode(plain))}
    found: dict[str, Any] = {}
    pairs = []
    for text in options.where or RULES:
        found[text], drawn, real = of_rule(text, form, states, frames, options)
        pairs.append((text, drawn, real))
        print(text, found[text], flush=True)
    return {"rules": found}, pictured(pairs, found, frames["test"])


def pictured(pairs: list[Any], found: dict[str, Any], everyone: pd.DataFrame) -> Figure:
    figure, axes = plt.subplots(len(pairs), len(PICTURED), figsize=(8.8, 1.9 * len(pairs)), squeeze=False)
    for line, (text, drawn, real) in zip(axes, pairs, strict=True):
        for axis, name in zip(line, PICTURED, strict=True):
            sides = (
                (everyone, "#c9ced3", "all real rows"),
                (real, "#5b6770", "real, under the rule"),
                (drawn, "#d1495b", "drawn"),
            )
            _column(axis, name, sides)
            axis.set_yticks([])
            axis.set_xlabel(name, fontsize=8)
            axis.tick_params(labelsize=7.5)
        line[0].set_title(text, loc="left", fontsize=8.5)
    axes[0, -1].legend(frameon=False, fontsize=7.5)
    return figure


def _column(axis: plt.Axes, name: str, sides: Any) -> None:
    whole = sides[0][0][name]
    if tables.is_number(whole):
        edges = np.linspace(float(whole.min()), float(whole.max()), 17 if whole.nunique() <= 16 else 25)
        for k, (frame, colour, label) in enumerate(sides):
            kind = {"color": colour, "alpha": 0.6} if k == 0 else {"histtype": "step", "edgecolor": colour, "lw": 1.3}
            axis.hist(frame[name].astype(float), edges, density=True, label=label, **kind)
        return
    names = list(whole.astype(str).value_counts().index[:6])
    for k, (frame, colour, label) in enumerate(sides):
        shares = frame[name].astype(str).value_counts(normalize=True).reindex(names, fill_value=0)
        axis.bar(np.arange(len(names)) + 0.27 * (k - 1), shares, 0.25, color=colour, label=label)
    axis.set_xticks(range(len(names)), [word[:9] for word in names], rotation=45, ha="right")
