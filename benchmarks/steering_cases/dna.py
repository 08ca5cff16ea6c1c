"""Windows of a genome with a motif, by a regular expression (`unnoise sample --regex`).

`.*TATAAT.*` asks for the motif anywhere, each window of the model given that it is there.  Windows of the genome are cut
anywhere, so the motif lies anywhere with the same chance, and what stands around it in real windows is known:

    matching        share of samples that match: all of them
    probability     that a window of the model matches, as the command estimates it, beside the share of plain samples of the
                    model that do, and of real windows
    k-mers          total variation between the laws of k letters in a row, of the windows and of real ones that match, the
                    motif itself left out
    around          the mean over the FLANK letters on each side of the total variation of one letter's law
    place           of the motif's first place: the Kolmogorov-Smirnov distance from a uniform law, and its p-value

each beside as many other real windows that match, plain samples into which the motif is written at a uniform place, and
samples by the proposal of a single particle, which looks ahead but is not weighed.  --pattern is another expression, drawn
and counted; the picture shows some of its windows.
"""

import argparse
import re
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from scipy.stats import kstest

from steering_cases import common
from unnoise.data.sequences import Sequences

LETTERS = "ACGT"
FLANK = 10
TINTS = {"A": "#2e8b57", "C": "#1f6fb4", "G": "#e08e1b", "T": "#d1495b"}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("genome", type=Path)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--motif", default="TATAAT")
    parser.add_argument("--pattern", default=".{15}TTGACA.{16,18}TATAAT.*", help="another expression, drawn and counted")
    parser.add_argument("-n", type=int, default=200, help="windows with the motif")
    parser.add_argument("--particles", type=int, default=4)
    parser.add_argument("--plain", type=int, default=1000, help="windows of the model that nothing is asked of")


def first_places(windows: list[str], motif: str) -> np.ndarray:
    """Of the motif, -1 where it is not."""
    return np.array([window.find(motif) for window in windows])


def kmers(windows: list[str], motif: str, k: int) -> np.ndarray:
    """The law of k letters in a row outside the motif, whose first place splits a window in two."""
    counts = np.zeros(len(LETTERS) ** k)
    for window in windows:
        for part in window.split(motif, 1):
            code = [LETTERS.index(letter) for letter in part]
            for i in range(len(code) - k + 1):
                counts[int(np.dot(code[i : i + k], len(LETTERS) ** np.arange(k)[::-1]))] += 1
    return counts / max(1, counts.sum())


def around(windows: list[str], motif: str, flank: int = FLANK) -> np.ndarray:
    """The law of one letter at each of the places before and after the motif, [2 flank, letters]."""
    counts = np.zeros((2 * flank, len(LETTERS)))
    for window in windows:
        place = window.find(motif)
        before, after = window[max(0, place - flank) : place], window[place + len(motif) :][:flank]
        for i, letter in enumerate(before):
            counts[flank - len(before) + i, LETTERS.index(letter)] += 1
        for i, letter in enumerate(after):
            counts[flank + i, LETTERS.index(letter)] += 1
    return counts / np.maximum(1, counts.sum(1, keepdims=True))


def apart(p: np.ndarray, q: np.ndarray) -> float:
    """Total variation, a mean over leading axes."""
    return float(np.abs(p - q).sum(-1).mean() / 2)


def uniform_places(places: np.ndarray, last: int) -> tuple[float, float]:
    """Kolmogorov-Smirnov distance of places 0 ... last from a uniform law, and its p-value; each is spread over its cell."""
    spread = np.random.default_rng(0).random(len(places))
    test = kstest((places + spread) / (last + 1), "uniform")
    return float(test.statistic), float(test.pvalue)


def judged(windows: list[str], motif: str, real: list[str]) -> dict[str, Any]:
    places = first_places(windows, motif)
    distance, p = uniform_places(places, len(windows[0]) - len(motif))
    return {
        "windows": len(windows),
        "matching": float((places >= 0).mean()),
        **{f"{k}-mers": apart(kmers(windows, motif, k), kmers(real, motif, k)) for k in (1, 2, 3, 4)},
        "around": apart(around(windows, motif), around(real, motif)),
        "place": distance,
        "place_p": p,
    }


def written_over(windows: list[str], motif: str, seed: int) -> list[str]:
    """The motif at a uniform place of each window."""
    places = np.random.default_rng(seed).integers(0, len(windows[0]) - len(motif) + 1, len(windows))
    return [window[:i] + motif + window[i + len(motif) :] for window, i in zip(windows, places, strict=True)]


def cut(genome: str, motif: str, length: int, seed: int) -> list[str]:
    """One window around each occurrence of the motif, its place in it drawn uniformly, in a random order: what windows that
    are cut anywhere and match look like, but for those with the motif more than once."""
    generator = np.random.default_rng(seed)
    found = []
    for match in re.finditer(motif, genome):
        begin = match.start() - int(generator.integers(0, length - len(motif) + 1))
        window = genome[max(0, begin) : max(0, begin) + length]
        if len(window) == length and set(window) <= set(LETTERS):
            found.append(window)
    return [found[i] for i in generator.permutation(len(found))]


def shown(options: argparse.Namespace) -> tuple[dict[str, Any], Figure]:
    run = common.trained(options, options.genome, "--length", options.length)
    form = run.format()
    assert isinstance(form, Sequences)
    windows = form.texts(form.encode(options.genome))
    motif = options.motif

    def drawn(n: int, *more: Any) -> tuple[list[str], dict[str, Any]]:
        out = options.out / "windows.fa"
        said = common.unnoise("sample", options.run, "-n", n, "--out", out, *more, may_lack=True)
        return form.texts(form.encode(out)), said

    by_motif = ["--regex", f".*{motif}.*", "--seed", options.seed]
    steered, said = drawn(options.n, *by_motif, "--particles", options.particles)
    alone, _ = drawn(options.n, *by_motif, "--particles", 1)
    plain, _ = drawn(options.plain, "--seed", options.seed + 1)
    wider, of_wider = drawn(24, "--regex", options.pattern, "--seed", options.seed, "--particles", options.particles)
    real = cut("".join(windows), motif, options.length, options.seed)
    other, known = real[: options.n], real[options.n :]
    found: dict[str, Any] = {
        "motif": motif,
        "real windows to compare with": len(known),
        "particles": options.particles,
        "worth": said["effective"],
        "network calls": said["calls"],
        "probability": float(np.exp(said["log_normaliser"])),
        "probability_error": float(np.exp(said["log_normaliser"]) * said["log_normaliser_error"]),
    }
    for name, some in {"plain samples": plain, "real windows": windows}.items():
        found[f"{name} that match"], found[f"{name} that match, se"] = common.share(first_places(some, motif) >= 0)
    sets = {
        "steered": steered,
        "one particle": alone,
        "written over": written_over(plain[: options.n], motif, options.seed),
        "real": other,
    }
    found["sets"] = {name: judged(some, motif, known) for name, some in sets.items()}
    match = re.compile(options.pattern)
    found["pattern"] = {
        "is": options.pattern,
        "drawn": len(wider),
        "matching": float(np.mean([match.fullmatch(window) is not None for window in wider])),
        "probability": float(np.exp(of_wider["log_normaliser"])),
        "probability_error": float(np.exp(of_wider["log_normaliser"]) * of_wider["log_normaliser_error"]),
        "real windows that match": float(np.mean([match.fullmatch(window) is not None for window in windows])),
    }
    return found, pictured(found, sets, wider, known)


def pictured(found: dict[str, Any], sets: dict[str, list[str]], wider: list[str], known: list[str]) -> Figure:
    motif = found["motif"]
    figure = plt.figure(figsize=(8.8, 4.2))
    left, right = figure.subfigures(1, 2, width_ratios=[1.25, 1])
    _letters(left.subplots(), wider[:16], found["pattern"]["is"])
    upper, lower = right.subplots(2, 1)
    names, order = ["3-mers", "4-mers", "around", "place"], list(sets)
    for k, name in enumerate(order):
        values = [found["sets"][name][figure_name] for figure_name in names]
        upper.bar(np.arange(len(names)) + 0.2 * (k - 1.5), values, 0.18, label=name, color=common.COLOURS[k])
    upper.set_xticks(range(len(names)), names)
    upper.set_title(f"windows with {motif}: distance from real ones", fontsize=9)
    upper.legend(frameon=False, fontsize=7.5)
    last = len(known[0]) - len(motif)
    for name, colour in (("steered", common.COLOURS[0]), ("one particle", common.COLOURS[1])):
        edges = np.linspace(0, last + 1, 11)
        lower.hist(first_places(sets[name], motif), edges, density=True, histtype="step", color=colour, lw=1.3, label=name)
    lower.axhline(1 / (last + 1), color="#5b6770", ls=":", lw=1)
    lower.set(xlabel=f"where {motif} begins (dotted: uniform)", yticks=[])
    lower.legend(frameon=False, fontsize=7.5)
    return figure


def written_out(window: str, pattern: str) -> set[int]:
    """Places of a window that letters written out in a pattern match."""
    found = re.fullmatch(re.sub(f"([{LETTERS}]{{3,}})", r"(\1)", pattern), window)
    return set() if found is None else {i for span in found.regs[1:] for i in range(*span)}


def _letters(axis: plt.Axes, windows: list[str], pattern: str) -> None:
    """The windows, what is written out in the pattern in bold."""
    for line, window in enumerate(windows):
        bold = written_out(window, pattern)
        for i, letter in enumerate(window):
            look = {"weight": "bold", "color": TINTS[letter]} if i in bold else {"color": "#aab1b7"}
            axis.text(i, -line, letter, family="monospace", fontsize=5.6, ha="center", va="center", **look)
    axis.set(xlim=(-1, len(windows[0])), ylim=(-len(windows), 1), title=pattern)
    axis.set_axis_off()
