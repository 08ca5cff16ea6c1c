"""Molecules under a reward (`unnoise sample --reward`): particles beside the best of n, at equal network calls.

The law that is meant is p exp(strength r) / Z, r a property from 0 to 1 and 0 for what is no molecule.  What it says is
estimated from --pool samples of the model, weighed by exp(strength r): the mean of r under it, and log Z, with errors.
Then, every sample chosen among N:

    particles       weighed on the way by an estimate of r and resampled (the command's own way)
    at the end      weighed at the end alone, one chosen by its weight: importance sampling
    best of n       of N plain samples the one with the largest r, which samples no law of that name

All three evaluate the network on as many rows.  `reward` is the mean of r, `valid` the share of molecules, `unique` that of
different ones among the valid, `apart` the mean Tanimoto distance of the valid ones' Morgan fingerprints (radius 2).
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from steering_cases import common
from unnoise.data.sequences import Sequences
from unnoise.evaluation.molecules import MoleculeScores


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("smiles", type=Path)
    parser.add_argument("--reward", default="qed", choices=("qed", "logp", "valid"))
    parser.add_argument("--strengths", default="10")
    parser.add_argument("--particles", default="4,16")
    parser.add_argument("-n", type=int, default=64, help="samples of each way")
    parser.add_argument("--pool", type=int, default=1024, help="plain samples")


def weighed_mean(rewards: np.ndarray, strength: float) -> tuple[float, float, float, float]:
    """Of p exp(strength r) from draws of p: (mean of r, its error, log Z, its error), errors to first order in 1/n."""
    w = np.exp(strength * (rewards - rewards.max()))
    mean, share = float((w * rewards).sum() / w.sum()), w / w.sum()
    error = float(np.sqrt((share**2 * (rewards - mean) ** 2).sum()))
    log_z = float(np.log(w.mean()) + strength * rewards.max())
    return mean, error, log_z, float(w.std() / w.mean() / len(w) ** 0.5)


def best_of(rewards: np.ndarray, count: int) -> np.ndarray:
    """Of each group of so many in a row, the place of the best; a rest that fills no group is left out."""
    groups = rewards[: len(rewards) // count * count].reshape(-1, count)
    return groups.argmax(1) + count * np.arange(len(groups))


def by_weight(rewards: np.ndarray, count: int, strength: float, seed: int) -> np.ndarray:
    """Of each group of so many in a row the place of one, with chances exp(strength r)."""
    groups = rewards[: len(rewards) // count * count].reshape(-1, count)
    w = np.exp(strength * (groups - groups.max(1, keepdims=True)))
    u = np.random.default_rng(seed).random((len(groups), 1))
    return (w.cumsum(1) / w.sum(1, keepdims=True) < u).sum(1) + count * np.arange(len(groups))


def apart(texts: list[str]) -> float | None:
    """The mean Tanimoto distance of pairs."""
    from rdkit import DataStructs
    from rdkit.Chem import rdFingerprintGenerator

    from steering_cases.properties import molecule

    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=1024)
    found = [generator.GetFingerprint(one) for one in map(molecule, texts) if one is not None]
    if len(found) < 2:
        return None
    alike = [s for i in range(1, len(found)) for s in DataStructs.BulkTanimotoSimilarity(found[i], found[:i])]
    return 1 - float(np.mean(alike))


def judged(texts: list[str], reward: Callable[[list[str]], list[float]], scores: MoleculeScores) -> dict[str, Any]:
    values, said = np.array(reward(texts)), scores.score(texts)
    return {
        "samples": len(texts),
        "reward": float(values.mean()),
        "reward_se": float(values.std(ddof=1) / len(values) ** 0.5),
        "valid": said["validity"],
        "unique": said["uniqueness"],
        "apart": apart(texts),
    }


def shown(options: argparse.Namespace) -> tuple[dict[str, Any], Figure]:
    from steering_cases import properties

    reward = getattr(properties, options.reward)
    run = common.trained(options, options.smiles)
    form = run.format()
    assert isinstance(form, Sequences)
    out = options.out / "molecules.csv"

    def drawn(n: int, seed: int, *more: Any) -> tuple[list[str], dict[str, Any]]:
        said = common.unnoise("sample", options.run, "-n", n, "--seed", seed, "--out", out, *more, may_lack=True)
        return out.read_text().split("\n")[1 : said["n"] + 1], said  # without the header; empty strings too

    train = form.texts(form.encode(options.smiles))
    scores = MoleculeScores([])
    pool, of_pool = drawn(options.pool, options.seed + 1)
    values = np.array(reward(pool))
    generator = np.random.default_rng(options.seed)
    real = [train[i] for i in generator.permutation(len(train))[: options.n]]
    found: dict[str, Any] = {"reward": options.reward, "plain": judged(pool, reward, scores)}
    found |= {"real": judged(real, reward, scores), "network calls of a sample": of_pool["calls"], "strengths": {}}
    picked: dict[str, list[str]] = {"plain": pool}
    best: dict[str, Any] = {}
    for count in map(int, options.particles.split(",")):
        chosen = [pool[i] for i in best_of(values, count)][: options.n]
        best[str(count)] = judged(chosen, reward, scores)
        picked[f"best of {count}"] = chosen
    found["best of n"] = best
    for strength in map(float, options.strengths.split(",")):
        mean, error, log_z, log_z_error = weighed_mean(values, strength)
        own: dict[str, Any] = {"target": {"reward": mean, "reward_se": error, "log_z": log_z, "log_z_error": log_z_error}}
        for count in map(int, options.particles.split(",")):
            asked = ["--reward", f"steering_cases.properties:{options.reward}", "--strength", strength]
            texts, said = drawn(options.n, options.seed, *asked, "--particles", count)
            own[f"particles {count}"] = {**judged(texts, reward, scores), **_figures(said)}
            end = [pool[i] for i in by_weight(values, count, strength, options.seed)][: options.n]
            own[f"at the end {count}"] = judged(end, reward, scores)
            picked[f"particles {count}, strength {strength:g}"] = texts
            print(strength, count, own[f"particles {count}"], own[f"at the end {count}"], flush=True)
        found["strengths"][f"{strength:g}"] = own
    return found, pictured(found, picked, reward)


def _figures(said: dict[str, Any]) -> dict[str, Any]:
    names = {"effective": "worth", "log_normaliser": "log_z", "log_normaliser_error": "log_z_error", "calls": "calls"}
    return {new: said[old] for old, new in names.items()}


def pictured(found: dict[str, Any], picked: dict[str, list[str]], reward: Any) -> Figure:
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.8, 3.4))
    counts = sorted(map(int, found["best of n"]))
    places = np.arange(len(counts))
    ways = {"best of n": [found["best of n"][str(c)] for c in counts]}
    for strength, own in found["strengths"].items():
        for way in ("particles", "at the end"):
            ways[f"{way}, strength {strength}"] = [own[f"{way} {c}"] for c in counts]
    width = 0.8 / len(ways)
    for k, (name, rows) in enumerate(ways.items()):
        heights, errors = ([row[n] for row in rows] for n in ("reward", "reward_se"))
        left.bar(
            places + width * (k - len(ways) / 2 + 0.5),
            heights,
            width * 0.9,
            yerr=errors,
            label=name,
            color=common.COLOURS[k],
        )
    for k, own in enumerate(found["strengths"].values()):
        left.axhline(own["target"]["reward"], color=common.COLOURS[1 + 2 * k], lw=1, ls=":")
    left.axhline(found["plain"]["reward"], color="#5b6770", lw=1)
    left.set_xticks(places, [f"N = {c}" for c in counts])
    left.set(title=f"mean {found['reward']} (dotted: the law that is meant; line: plain samples)")
    left.title.set_fontsize(8.5)
    left.legend(frameon=False, fontsize=7)
    for k, (name, texts) in enumerate(picked.items()):
        right.hist(reward(texts), np.linspace(0, 1, 21), density=True, histtype="step", lw=1.3, label=name, color=f"C{k}")
    right.set(title=f"{found['reward']} of samples", yticks=[])
    right.legend(frameon=False, fontsize=7)
    return figure
