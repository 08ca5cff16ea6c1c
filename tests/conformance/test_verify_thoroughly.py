"""Every check of `unnoise verify --thorough`, one test per process: 50 points of a mixture, ten wrong networks.

A family that is registered without an oracle cannot build its subjects, and fails here.  The rows that pages quote are among
those that are printed; their numbers are not compared, since a row shows the entry that differs most, and which one that is
depends on the last digit.  (A quick run has the same rows, with fewer wrong networks.)
"""

import re
from collections import defaultdict
from pathlib import Path

import pytest

from unnoise.cli.verify import Verify
from unnoise.verify import FAMILIES, checks, render, subjects

DOCS = Path(__file__).parents[2] / "docs"
ROW = re.compile(r"^(\w+/.+?) {2,}.* ok$", re.MULTILINE)
NAMES = [subject.name for subject in subjects()]
SLOW = (  # half a minute or more on one core; others of their families are quicker
    "Counts/immigration LogSNRLinear",
    "Counts/immigration",
    "Counts/two coordinates",
    "Counts/PerCoordinate",
    "Product/nested",
    "Gaussian/Learned per coordinate",
    "RateMatrix/similarity, sparse",
    "Jumps/VE",
    "Jumps/LinearBeta",
    "Simplex/three vertices",
    "Simplex/WrightFisher×Masking",
)


def place(cells: tuple[str, ...]) -> tuple[str, ...]:
    """Process, prediction, objective and quantity, whichever the wrong network is."""
    return *cells[:3], re.sub(r"network \d+", "network", cells[3])


def quoted() -> dict[str, list[tuple[str, ...]]]:
    """Per subject: the places of the rows that pages quote."""
    rows = defaultdict(list)
    for page in sorted(DOCS.glob("*.md")):
        for match in ROW.finditer(page.read_text(encoding="utf-8")):
            rows[match.group(1)].append(place(tuple(re.split(r" {2,}", match.group(0)))))
    return rows


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=getattr(pytest.mark, "campaign" if name in SLOW else "conformance")) for name in NAMES]
)
def test_subject(name):
    (subject,) = (s for s in subjects(name) if s.name == name)
    rows = list(checks(subject, thorough=True))
    failed = [row for row in rows if not row.ok]
    assert rows and not failed, "\n" + render(failed)
    printed = {place((row.process, row.prediction, row.objective, row.quantity)) for row in rows}
    for wanted in quoted().get(name, []):
        assert wanted in printed, f"a page quotes a row that verify does not print: {wanted}"


@pytest.mark.conformance
def test_pages_quote_processes_that_there_are():
    assert len(quoted()) >= 5 and set(quoted()) <= set(NAMES)


@pytest.mark.conformance
def test_a_brief_run(capsys):
    assert Verify(brief=True).run() == 0
    assert ": 0 failed" in capsys.readouterr().out


@pytest.mark.conformance
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_subjects_with_an_oracle(family):
    found = list(FAMILIES[family]())
    assert found and all(subject.oracle.log_prob(subject.points).isfinite().all() for subject in found)
