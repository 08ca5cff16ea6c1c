"""Every check of `unnoise verify --thorough`, one test per process: 50 points of a mixture, ten wrong networks.

A family that is registered without an oracle cannot build its subjects, and fails here.
"""

import pytest

from unnoise.verify import FAMILIES, checks, render, subjects

NAMES = [subject.name for subject in subjects()]


@pytest.mark.conformance
@pytest.mark.parametrize("name", NAMES)
def test_subject(name):
    (subject,) = (s for s in subjects(name) if s.name == name)
    rows = list(checks(subject, thorough=True))
    failed = [row for row in rows if not row.ok]
    assert rows and not failed, "\n" + render(failed)


@pytest.mark.conformance
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_subjects_with_an_oracle(family):
    found = list(FAMILIES[family]())
    assert found and all(subject.oracle.log_prob(subject.points).isfinite().all() for subject in found)
