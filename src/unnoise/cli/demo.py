"""`unnoise demo`: three small models of built-in data, trained and shown on one page.

    digits as numbers       8 x 8 pixels with 17 levels under Gaussian noise       beside a Gaussian fitted to them
    digits as categories    the same levels as categories, by steps up and down    beside independent pixels
    a mixed table           a census extract, numbers and categories together      beside independent columns

All figures are nats per held-out example: the model's bound, above its negative log-likelihood, and that of the baseline.
"""

from dataclasses import dataclass
from pathlib import Path

from unnoise.cli.tables import table


@dataclass(kw_only=True)
class Demo:
    """Train three small models on built-in data (8 x 8 digits as numbers and as categories, a mixed table), print their
    bounds beside simple baselines, and write one page with pictures."""

    out: Path = Path("demo")
    """The folder for the page and the three runs; it must be new or empty."""

    seconds: float = 32.0
    """Training time of each model."""

    seed: int = 0
    """The seed of all draws."""

    def run(self) -> int:
        if self.out.exists() and (not self.out.is_dir() or any(self.out.iterdir())):
            raise ValueError(f"{self.out} is not empty: choose a new folder with --out")
        try:
            import matplotlib
            import sklearn  # noqa: F401
        except ImportError as error:
            raise ValueError(f"the demo needs {error.name}: pip install 'unnoise[all]'") from None
        matplotlib.use("Agg")
        from unnoise.cli.demo_models import built_in, trained
        from unnoise.cli.demo_page import write_page

        self.out.mkdir(parents=True, exist_ok=True)
        results = [
            trained(self.out, name, path, categories, self.seconds, self.seed)
            for name, path, categories in built_in(self.out)
        ]
        rows = [
            [r["name"], f"{r['bound']:.2f} ± {r['standard_error']:.2f}", f"{r['baseline']:.2f}", r["against"]]
            for r in results
        ]
        print(table(["model", "bound, nats per example", "baseline", "which is"], rows))
        page = write_page(self.out, results, self.seed)
        print(f"wrote {page}")
        return 0 if all(r["bound"] < r["baseline"] for r in results) else 1
