"""Tests stand where the code that they test stands: a folder for each package, a file at the top for each module there."""

from pathlib import Path

import unnoise

TESTS, PACKAGE = Path(__file__).parent, Path(unnoise.__file__).parent
NO_PACKAGE = {"conformance", "examples"}  # slow truths of every package, and the examples of the docs
REPOSITORY = (
    "layout",
    "names",
    "docs",
    "equations",
    "walks",
    "unchanged",
    "mutation_tool",
    "table_zoo",
    "method_table",
    "steering_cases",
)
LIBRARY = (
    "smoke",
    "errors",
    "compile",
    "compile_objectives",
    "cuda",
    "cuda_spaces",
    "waiting",
    "names_and_arrays",
    "given_things",
    "own_code",
)
WHOLE = {*REPOSITORY, *LIBRARY}  # what no one module answers for


def misplaced(tests: Path, package: Path) -> list[str]:
    """The test files that stand beside no package and no module."""
    folders = {str(init.parent.relative_to(package)) for init in package.rglob("__init__.py")} - {"."} | NO_PACKAGE
    modules = {file.stem.strip("_") for file in package.glob("*.py")} | WHOLE
    found = []
    for file in sorted(path.relative_to(tests) for path in tests.rglob("test_*.py")):
        at_the_top = file.parent == Path()
        known = file.stem.removeprefix("test_") in modules if at_the_top else str(file.parent) in folders
        found += [] if known else [str(file)]
    return found


def test_tests_mirror_the_package():
    assert misplaced(TESTS, PACKAGE) == []


def test_the_exceptions_are_there():
    assert all((TESTS / name).is_dir() and not (PACKAGE / name).exists() for name in NO_PACKAGE)
    assert all((TESTS / f"test_{name}.py").is_file() and not (PACKAGE / f"{name}.py").exists() for name in WHOLE)


def test_a_misplaced_file_is_noticed(tmp_path):
    package, tests = tmp_path / "package", tmp_path / "tests"
    (package / "spaces").mkdir(parents=True)
    for file in ("__init__.py", "__main__.py", "laws.py", "spaces/__init__.py", "spaces/finite.py"):
        (package / file).touch()
    right = ["test_laws.py", "test_main.py", "test_smoke.py", "spaces/test_finite.py", "examples/test_circle.py"]
    wrong = ["laws/test_one.py", "spaces/more/test_two.py", "test_finite.py", "test_spaces.py"]
    for file in right + wrong:
        (tests / file).parent.mkdir(parents=True, exist_ok=True)
        (tests / file).touch()
    assert misplaced(tests, package) == wrong
