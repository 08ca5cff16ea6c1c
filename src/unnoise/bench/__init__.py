"""Speed: what the library's default ways cost, beside what nothing can undercut and beside other libraries.

    unnoise bench [--only masking,numbers] [--size small] [--json] [--out FILE]

Each row of the table is a function in a file of its own, registered by name (`register`); a user's own joins them by
`--load`.  A row's floor is a time that no sampler or loss can undercut: that of the network alone, called as often as the
task needs it.  Networks have untrained weights, which changes nothing of their speed.
"""

from unnoise.bench import (  # noqa: F401  (they register their rows)
    digits,
    masking,
    numbers,
    ready_logits,
    small_steps,
    tables,
    throughput,
    training_steps,
)
from unnoise.bench.figures import Aim, Figure
from unnoise.bench.machine import Origin
from unnoise.bench.registry import ROWS, BenchRow, chosen, register
from unnoise.bench.report import BenchReport
from unnoise.bench.setting import SIZES, BenchSetting
from unnoise.bench.timing import Timing, recorded, taken

__all__ = [
    "ROWS",
    "SIZES",
    "Aim",
    "BenchReport",
    "BenchRow",
    "BenchSetting",
    "Figure",
    "Origin",
    "Timing",
    "chosen",
    "recorded",
    "register",
    "taken",
]
