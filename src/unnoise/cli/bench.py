"""`unnoise bench`: how fast the library is on this machine."""

import json
import sys
import time
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Literal

from unnoise.cli.extending import Extended


@dataclass(kw_only=True)
class Bench(Extended):
    """Print the time of the library's default ways on this machine, beside the network's own time and other libraries.

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

    def check(self) -> None:
        """What can be said of the options alone."""
        if self.out is not None and not self.out.parent.is_dir():
            raise ValueError(f"--out {self.out}: there is no folder {self.out.parent}: make it first")

    def run(self) -> int:
        self.check()
        self.load_extensions()
        from unnoise.bench import BenchReport, BenchSetting, chosen, machine, versions

        rows = chosen(part.strip() for part in self.only.split(",")) if self.only else chosen()
        setting = BenchSetting.of(self.device, self.size)
        started, figures = time.monotonic(), list[Any]()
        for row in self.shown(rows):
            figures.extend(row.figures(setting))
        report = BenchReport(
            figures=figures,
            machine=machine(setting.device),
            size=setting.size,
            versions=versions(),
            date=date.today().isoformat(),
            command=self.command(),
            seconds=time.monotonic() - started,
        )
        print(json.dumps(report.json(), indent=1) if self.json else report.text())
        if self.out is not None:
            self.out.write_text(report.markdown())
        return 1 if report.failed else 0

    def command(self) -> str:
        """The command that measures the same again."""
        told = {"--only": self.only, "--size": self.size, "--device": None if self.device == "auto" else self.device}
        return " ".join(["unnoise bench", *(f"{name} {value}" for name, value in told.items() if value is not None)])

    def shown(self, rows: list[Any]) -> Any:
        """The same, with a bar where someone looks on."""
        from tqdm import tqdm

        with tqdm(rows, unit="row", disable=not sys.stderr.isatty(), file=sys.stderr, leave=False) as bar:
            for row in bar:
                bar.set_description(row.name)
                yield row
