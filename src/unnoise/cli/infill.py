"""`unnoise infill`: fill the gaps of a file."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

TRIES = 20  # draws of a row whose gaps come out as missing values


@dataclass(kw_only=True)
class Infill:
    """Fill the gaps of a file with draws of a run, given all that is known.

    Gaps are the missing cells (or columns left out) of a table, the character _ in text, FASTA and SMILES, and NaN or a
    marked number in arrays.
    """

    folder: Annotated[Path, tyro.conf.Positional]
    """The folder of the run."""

    path: Annotated[Path, tyro.conf.Positional]
    """The file with gaps."""

    out: Path
    """The file to write."""

    mark: str | None = None
    """What stands for a gap, if not an empty cell, _ or NaN; whole numbers in arrays need one."""

    steps: int | None = None
    """Steps of the method; the default depends on the data."""

    rounds: int = 8
    """Of each step where the conditioning is approximate: more are closer."""

    seed: int = 0
    """What fills a row is a function of the seed, its place in the file and what is known of it."""

    device: str = "auto"
    """auto or cpu."""

    json: bool = False
    """Print the result as JSON."""

    def run(self) -> int:
        from unnoise.data.sequences import END, Sequences
        from unnoise.data.table import Table
        from unnoise.networks.end_symbol import EndBarred
        from unnoise.training.drawing import conditioning, fill
        from unnoise.training.run import Run
        from unnoise.tree import batch_size, map_leaves

        run = Run.open(self.folder)
        format = run.format()
        format.check_out(self.out)
        x, fixed = format.gaps(self.path, self.mark)
        denoiser = run.denoiser(which="best")
        if isinstance(format, Sequences) and format.padded and format.noise == "masking":
            denoiser.network = EndBarred(denoiser.network, format.alphabet.index(END), len(format.alphabet))
        filled, settled, calls, left = x, fixed, 0, 0
        for attempt in range(TRIES):
            seed = self.seed ^ (attempt << 40)
            filled, info = fill(denoiser, filled, settled, seed, self.steps, self.device, rounds=self.rounds)
            calls += info.calls
            if not isinstance(format, Table):
                break
            # a gap that came out as missing is none the fuller: its row is drawn anew, so that all are given they are not
            blank = format.blank(filled, fixed)
            left, done = int(blank.sum()), ~blank.any(1)
            if not left:
                break
            settled = map_leaves(lambda leaf, done=done: leaf | done.reshape(-1, *[1] * (leaf.ndim - 1)), fixed)
        format.write_filled(filled, self.path, self.out, self.mark)
        gaps = _count(format, fixed)
        parts = _by_part(format, conditioning(denoiser.process, fixed, self.rounds), fixed)
        how = next((label for label in parts.values() if label != "exact"), "exact")
        result = {"out": str(self.out), "rows": batch_size(x), "filled": gaps - left, "calls": calls}
        result |= {"missing": left} if left else {}
        told = f"filled {gaps - left} gaps in {batch_size(x)} rows; wrote {self.out}"
        told += f"\n{left} more came out as missing values {TRIES} times, and stay so" if left else ""
        for label in dict.fromkeys(parts.values()):
            names = ", ".join(name for name, own in parts.items() if own == label)
            told += f"\nconditioning on what is known: {label} ({names})"
        print(json.dumps({**result, "conditioning": how, "parts": parts}) if self.json else told)
        return 0


def _count(format: Any, fixed: Any) -> int:
    """Cells of a table that were filled (a column may have a coordinate in two leaves), or entries of other data."""
    if format.kind != "table":
        return int((~fixed).sum())
    filled: dict[str, Any] = {}
    for leaf, known in fixed.items():
        names = [format.leaves[leaf].name] if leaf in format.leaves else [column.name for column in format.coordinates]
        for name, own in zip(names, known.reshape(len(known), -1).unbind(1), strict=True):
            filled[name] = ~own | filled.get(name, False)
    return sum(int(cells.sum()) for cells in filled.values())


def _by_part(format: Any, labels: dict[str, str], fixed: Any) -> dict[str, str]:
    """The labels of leaves, by the columns of a table that have gaps, or for all of another kind of data."""
    if format.kind != "table":
        return dict.fromkeys([format.kind], next(iter(labels.values()), "exact"))
    parts: dict[str, str] = {}
    for leaf, label in labels.items():
        if leaf in format.leaves:
            parts[format.leaves[leaf].name] = label
        else:
            known = fixed[leaf].all(0).tolist()
            parts |= {c.name: label for c, all_known in zip(format.coordinates, known, strict=True) if not all_known}
    return parts
