"""One name, one meaning: no two classes of the package share one."""

import ast
import subprocess
import sys
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


def test_the_names_that_are_fetched_later_are_those_that_type_checkers_see():
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If)).body
    seen = {(node.module.removeprefix("unnoise").lstrip("."), name.name) for node in block for name in node.names}
    fetched = {(module, name) for module, names in unnoise.NAMES.items() for name in names.split()}
    assert seen == fetched | {("", name) for name in unnoise.__all__ if name in unnoise.MODULES}
    assert {name for _, name in seen} == set(unnoise.__all__) <= set(dir(unnoise))


def test_names_are_there_however_they_are_asked_for():
    code = """
import pickle, sys
import unnoise as un
assert "torch" not in sys.modules
from unnoise import Gaussian, samplers
from unnoise import *
import unnoise.processes.gaussian as module
assert un.Gaussian is Gaussian is module.Gaussian and un.samplers is samplers and un.noise.NoiseSource is NoiseSource
assert type(pickle.loads(pickle.dumps(un.Gaussian((2,))))) is Gaussian
try:
    un.Gausian
except AttributeError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "module 'unnoise' has no attribute 'Gausian'\n", done.stderr
