"""One name, one meaning: no two classes of the package share one."""

import ast
from collections import defaultdict
from pathlib import Path

import unnoise

PACKAGE = Path(unnoise.__file__).parent


def classes(folder: Path) -> dict[str, list[str]]:
    """The places of every class that is defined at the top of a module."""
    found = defaultdict(list)
    for file in sorted(folder.rglob("*.py")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(file.relative_to(folder)))
    return found


def test_no_class_name_is_used_twice():
    twice = {name: places for name, places in classes(PACKAGE).items() if len(places) > 1}
    assert not twice


def test_a_name_used_twice_is_noticed(tmp_path):
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("class Twice:\n    pass\n")
    assert classes(tmp_path)["Twice"] == ["a.py", "b.py"]


def test_the_public_names_do_not_differ_by_case_alone():
    """`un.Rates` and `un.rates` were two things."""
    lowered = [name.lower() for name in unnoise.__all__ if name.lower() not in ("product",)]
    alike = {name for name in lowered if lowered.count(name) > 1}
    assert not alike
