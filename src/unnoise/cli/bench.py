"""`unnoise bench`: how fast the library is on this machine."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from unnoise.cli.extending import Extended


@dataclass(kw_only=True)
class Bench(Extended):
    """Print how long the library's default ways take on this machine, beside the network's own time and other libraries; or
    how times grow with batch, length and vocabulary (--scaling).

    Exit status 1 if a row cannot be measured, 2 on bad input.
    """

    only: str | None = None
    """Rows by name, e.g. masking or masking,numbers."""

    size: Literal["tiny", "small", "large"] | None = None
    """How large: by the device unless given."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where."""

    json: bool = False
    """Print the result as JSON."""

    out: Path | None = None
    """Also write the table into this file, as markdown."""

    scaling: Path | None = None
    """Instead of the table measure how the time of a step grows, and draw it into this file, e.g. scaling.png."""

    def check(self) -> None:
        """What can be said of the options alone."""
        for option, path in (("--out", self.out), ("--scaling", self.scaling)):
            if path is not None and not path.parent.is_dir():
                raise ValueError(f"{option} {path}: there is no folder {path.parent}: make it first")
        if self.scaling is not None and self.only is not None:
            raise ValueError(
                f"--only {self.only} chooses rows of the table, which --scaling leaves out: give one of the two"
            )

    def run(self) -> int:
        self.check()
        from unnoise.bench import BenchSetting

        self.load_extensions()
        setting = BenchSetting.of(self.device, self.size)
        report, status = self.table(setting) if self.scaling is None else self.growth(setting, self.scaling)
        print(json.dumps(report.json(), indent=1) if self.json else report.text())
        return status

    def keep(self, report: Any) -> Any:
        """Write what there is, so that a run that is cut short leaves what it has measured."""
        if self.out is not None:
            self.out.write_text(report.markdown())
        return report

    def table(self, setting: Any) -> tuple[Any, int]:
        """The rows asked for; status 1 where one failed."""
        from unnoise.bench import BenchReport, Origin, chosen

        rows = chosen(part.strip() for part in self.only.split(",")) if self.only else chosen()
        started, figures = time.monotonic(), list[Any]()
        for row in self.shown(rows, "row", lambda row: row.name):
            figures.extend(row.figures(setting))
            report = self.keep(BenchReport(figures, Origin.of(setting, self.command(), time.monotonic() - started)))
        return report, 1 if report.failed else 0

    def growth(self, setting: Any, file: Path) -> tuple[Any, int]:
        """The sweeps, drawn into the file."""
        from unnoise.bench import Origin
        from unnoise.bench.scaling import GrowthReport, scaling
        from unnoise.bench.scaling_picture import canvas, save

        measures = scaling(setting)
        picture, started, sweeps = canvas(len(measures)), time.monotonic(), list[Any]()
        for measure in self.shown(measures, "sweep", lambda _: "scaling"):
            sweeps.extend(measure())
        origin = Origin.of(setting, self.command(), time.monotonic() - started)
        save(sweeps, picture, f"{origin.machine}, {origin.date}", file)
        return self.keep(GrowthReport(sweeps, origin)), 0

    def command(self) -> str:
        """The command that measures the same again."""
        told = {
            "--scaling": self.scaling,
            "--only": self.only,
            "--size": self.size,
            "--device": None if self.device == "auto" else self.device,
        }
        return " ".join(["unnoise bench", *(f"{name} {value}" for name, value in told.items() if value is not None)])

    def shown(self, items: list[Any], unit: str, name: Callable[[Any], str]) -> Iterator[Any]:
        """The same, with a bar where someone looks on."""
        from tqdm import tqdm

        with tqdm(items, unit=unit, disable=not sys.stderr.isatty(), file=sys.stderr, leave=False) as bar:
            for item in bar:
                bar.set_description(name(item))
                yield item
