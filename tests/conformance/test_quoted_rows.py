"""The rows of `unnoise verify` that pages quote are rows that it prints.

Their numbers are not compared: a row shows the entry that differs most, and which one that is depends on the last digit.
"""

import re
from collections import defaultdict
from pathlib import Path

import pytest

from unnoise.verify import checks, subjects

DOCS = Path(__file__).parents[2] / "docs"
ROW = re.compile(r"^(\w+/.+?) {2,}.* ok$", re.MULTILINE)


def quoted() -> dict[str, list[tuple[str, ...]]]:
    """Per subject: process, prediction, objective and quantity of each quoted row."""
    rows = defaultdict(list)
    for page in sorted(DOCS.glob("*.md")):
        for match in ROW.finditer(page.read_text(encoding="utf-8")):
            rows[match.group(1)].append(tuple(re.split(r" {2,}", match.group(0))[:4]))
    return rows


@pytest.mark.conformance
@pytest.mark.parametrize("name", quoted())
def test_quoted_rows_are_printed(name):
    (subject,) = [s for s in subjects(name) if s.name == name]
    printed = {(row.process, row.prediction, row.objective, row.quantity): row.ok for row in checks(subject)}
    for place in quoted()[name]:
        assert printed.get(place), f"verify prints no such row, or one that fails: {place}"
