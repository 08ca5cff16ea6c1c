"""Every process that the library exports is verified, and none without an oracle."""

import pytest

from unnoise import processes
from unnoise.processes import Chain, MatrixChain, Process, Product, Simulated, Uniform
from unnoise.verify import FAMILIES, Subject, checks, subjects


def exported():
    """The exported classes of processes that can be built: none of their methods is abstract, and they have laws."""
    found = [getattr(processes, name) for name in processes.__all__]
    classes = [c for c in found if isinstance(c, type) and issubclass(c, Process) and c.marginal is not Process.marginal]
    classes = [c for c in classes if c is not Simulated]  # a user's own, verified along its paths (`test_own_process`)
    return [c for c in classes if not any(getattr(getattr(c, n, None), "__isabstractmethod__", False) for n in dir(c))]


def parts(process):
    """The process itself, the leaves of a product, the base of a chain."""
    yield process
    if isinstance(process, Product):
        for leaf in process.leaves.values():
            yield from parts(leaf)
    if isinstance(process, Chain):
        yield from parts(process.process)


def unverified():
    """Exported classes among no subject; a base that others specialise is covered by one of them."""
    seen = {type(part) for build in FAMILIES.values() for subject in build() for part in parts(subject.process)}
    classes = exported()

    def covered(c):
        specialised = any(issubclass(other, c) and other is not c for other in classes)
        return any(issubclass(s, c) if specialised else s is c for s in seen)

    return [c.__name__ for c in classes if not covered(c)]


def test_every_exported_process_is_verified():
    names = {c.__name__ for c in exported()}
    assert names >= {"Gaussian", "Masking", "Uniform", "Interpolation", "Mixture", "RateMatrix", "BirthDeath", "MatrixChain"}
    assert names >= {"Thinning", "Product", "Chain"} and "RankOne" not in names and "Process" not in names
    assert not unverified()


@pytest.mark.parametrize(
    ("family", "lost"),
    [("mixture", ["Mixture"]), ("rate_matrix", ["RateMatrix"]), ("matrix_chain", ["Chain", "MatrixChain"])],
)
def test_a_family_that_is_not_registered_is_missed(family, lost, monkeypatch):
    monkeypatch.delitem(FAMILIES, family)
    assert unverified() == lost


def test_a_new_process_that_is_not_registered_is_missed(monkeypatch):
    class Planted(Uniform):
        """A process of its own."""

    monkeypatch.setattr(processes, "Planted", Planted, raising=False)
    monkeypatch.setattr(processes, "__all__", [*processes.__all__, "Planted"])
    assert unverified() == ["Planted"]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_subject_has_an_oracle_that_knows_its_points(family):
    found = list(FAMILIES[family]())
    assert found
    for subject in found:
        assert subject.oracle.log_prob(subject.points).isfinite().all()
        assert subject.kinds


def test_names_are_their_own():
    names = [subject.name for subject in subjects()]
    assert len(set(names)) == len(names)


def without_oracle():
    """A family that nobody can check."""
    good = next(FAMILIES["mixture"]())
    yield Subject("planted", good.process, None, good.kinds, good.grid_kind, good.points)


def test_a_family_without_an_oracle_fails(monkeypatch):
    """When it is built: by the class itself, and in the tests by the annotations that are checked before it."""
    monkeypatch.setitem(FAMILIES, "planted", without_oracle)
    with pytest.raises(TypeError, match="oracle"):
        subjects()
    with pytest.raises(TypeError, match="oracle"):
        test_every_subject_has_an_oracle_that_knows_its_points("planted")
    subject = next(FAMILIES["mixture"]())
    subject.oracle = None
    with pytest.raises(TypeError, match="has no oracle: nothing could be compared, so the process cannot be verified"):
        subject.__post_init__()


def test_an_oracle_that_is_taken_away_fails_the_checks():
    subject = next(FAMILIES["mixture"]())
    subject.oracle = None
    with pytest.raises((AttributeError, TypeError), match="NoneType|Oracle"):
        list(checks(subject))


def test_chains_by_matrices_have_their_own_checks():
    chains = [subject for subject in subjects("matrixchain") if isinstance(subject.process, MatrixChain)]
    assert len(chains) >= 4 and not any(subject.process.process.has_generator for subject in chains)
    rows = list(checks(chains[0]))
    assert any("product of the matrices" in row.quantity for row in rows) and all(row.ok for row in rows)
