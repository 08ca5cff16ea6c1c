"""What a run measures while it trains: `metrics.jsonl`, TensorBoard where it is installed, and a line for people.

The file holds one JSON object per line.  A run that goes on from a saved state drops the lines after it, so the file is that
of an unbroken run.
"""

import json
from math import nan
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from unnoise.training import safe_files
from unnoise.training.panels import excerpt


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All whole lines; one that a kill cut short is left out.  What is null, for JSON has no such number, is NaN here."""
    lines = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict) and isinstance(entry.get("step"), int):
            lines.append({name: nan if value is None else value for name, value in entry.items()})
    return lines


class Metrics:
    def __init__(self, path: Path, step: int, total: int | None, progress: bool, tensorboard: bool):
        kept = [entry for entry in read_metrics(path) if entry["step"] <= step]
        safe_files.write_text(path, "".join(safe_files.strict_json(entry) + "\n" for entry in kept))
        self.file = open(path, "a")  # noqa: SIM115 (closed by close)
        self.board = _board(path.parent / "tensorboard", step) if tensorboard else None
        self.bar = tqdm(total=total, initial=step, desc="training", unit="step", disable=not progress)
        self.shown: dict[str, str] = {}

    def write(self, step: int, entry: dict[str, Any]) -> None:
        self.file.write(safe_files.strict_json({"step": step, **entry}) + "\n")
        self.file.flush()
        if self.board is not None:
            for name, value in entry.items():
                if isinstance(value, float | int):
                    self.board.add_scalar(name, value, step)

    def panel(self, step: int, path: Path) -> None:
        """A file of samples, for TensorBoard."""
        if self.board is None:
            return
        if path.suffix == ".png":
            import numpy as np
            from PIL import Image

            with Image.open(path) as image:
                self.board.add_image("samples", np.asarray(image.convert("RGB")), step, dataformats="HWC")
        elif (text := excerpt(path, 20)) is not None:
            self.board.add_text("samples", "\n".join("    " + line for line in text.splitlines()), step)

    def show(self, step: int, **shown: str) -> None:
        """Renew the line for people: the bar itself knows the pace and the time left."""
        self.shown.update(shown)
        self.bar.set_postfix(self.shown, refresh=False)
        self.bar.update(step - self.bar.n)
        self.bar.refresh()

    def close(self) -> None:
        self.file.close()
        self.bar.close()
        if self.board is not None:
            self.board.close()


def _board(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder), purge_step=step + 1)
