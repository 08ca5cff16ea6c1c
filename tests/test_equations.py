"""docs/equations.md and the code agree: every label has a place that is there and cites it, and a test that is there.

The page is the list of the primer's labels; the primer itself is not needed.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE, TESTS, DOCS = ROOT / "src" / "unnoise", ROOT / "tests", ROOT / "docs"
PAGE = (DOCS / "equations.md").read_text(encoding="utf-8")
COUNT = 176  # labels of the primer
LABEL = re.compile(r"(?<!\w)eq:[A-Za-z0-9](?:[\w|:-]*\w)?")
NOT_BUILT = "not built: "


@dataclass
class Entry:
    """One line of the page."""

    label: str
    twin: str | None  # the label that the code cites for it, where the equation appears more than once
    places: list[str]
    tests: list[str]
    rows: list[str]  # of `unnoise verify`
    why: str | None  # it is not built

    @property
    def files(self) -> set[str]:
        return {place.split(": ")[0] for place in self.places}


def entries(page: str) -> Iterator[Entry]:
    for line in page.splitlines():
        if not line.startswith("| `eq:"):
            continue
        cells = [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        assert len(cells) == 4, f"{len(cells)} cells in place of 4: {line}"
        label, says, place, test = cells
        twin = re.search(r"\(= `(eq:[^`]+)`\)", says)
        why = place.removeprefix(NOT_BUILT) if place.startswith(NOT_BUILT) else None
        named = [] if why is not None else re.findall(r"`([^`]+)`", place)
        rows = re.findall(r'verify "([^"]+)"', test)
        yield Entry(label.strip("`"), twin and twin.group(1), named, re.findall(r"`([^`]+)`", test), rows, why)


@cache
def symbols(path: Path) -> frozenset[str]:
    """Functions, classes, `Class.method` and `Class.attribute` of a file."""

    def of(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
        for node in body:
            if isinstance(node, ast.FunctionDef):
                yield prefix + node.name
            elif isinstance(node, ast.ClassDef):
                yield prefix + node.name
                yield from of(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                yield prefix + node.target.id

    return frozenset(of(ast.parse(path.read_text(encoding="utf-8")).body))


@cache
def quantities() -> str:
    """All strings that calls in `unnoise.verify` are given, one a line; what is put into them at run time is left out."""
    out = []
    for path in sorted((SOURCE / "verify").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for text in node.args if isinstance(node, ast.Call) else ():
                if isinstance(text, ast.JoinedStr):
                    out.append("".join(str(v.value) if isinstance(v, ast.Constant) else "{}" for v in text.values))
                elif isinstance(text, ast.Constant) and isinstance(text.value, str):
                    out.append(text.value)
    return "\n".join(out)


@cache
def citations() -> dict[str, frozenset[str]]:
    """The labels that each file of the library cites."""
    files = sorted(SOURCE.rglob("*.py"))
    return {
        path.relative_to(SOURCE).as_posix(): frozenset(LABEL.findall(path.read_text(encoding="utf-8"))) for path in files
    }


def missing(folder: Path, name: str) -> str | None:
    """What is not there of `file.py: symbol`."""
    file, _, symbol = name.partition(": ")
    if not (folder / file).is_file():
        return f"there is no file {file} in {folder.relative_to(ROOT)}"
    return None if symbol in symbols(folder / file) else f"{file} has no {symbol or 'symbol of that name'}"


def problems_of(entry: Entry, page: dict[str, Entry], cited: dict[str, frozenset[str]]) -> Iterator[str]:
    if entry.why is not None:
        if len(entry.why) < 20:
            yield f"not built, for no reason: {entry.why!r}"
        yield from (f"not built, but {file} cites it" for file, labels in cited.items() if entry.label in labels)
        return
    if not entry.places or not (entry.tests or entry.rows):
        yield "has no place, or no test, and is not said to be not built"
    for folder, names in ((SOURCE, entry.places), (TESTS, entry.tests)):
        yield from (what for name in names if (what := missing(folder, name)))
    yield from (f"no check of verify is called {row!r}" for row in entry.rows if row not in quantities())
    if entry.twin is not None:
        other = page.get(entry.twin)
        if other is None or other.places != entry.places:
            yield f"stands for {entry.twin}, which is not on the page, or elsewhere in the code"
    label = entry.twin or entry.label
    if not any(label in cited.get(file, ()) for file in entry.files):
        yield f"none of {', '.join(sorted(entry.files))} cites {label}"


def problems(page: str, cited: dict[str, frozenset[str]]) -> list[str]:
    """All that page and code disagree about."""
    listed = list(entries(page))
    by_label = {entry.label: entry for entry in listed}
    out = []
    if len(listed) != COUNT or len(by_label) != COUNT:
        out.append(f"{len(listed)} lines of {len(by_label)} labels, not {COUNT}")
    built = sum(entry.why is None for entry in listed)
    if f"{built} are built, {len(listed) - built} are not" not in page:
        out.append(f"{built} are built, {len(listed) - built} are not: the page says otherwise")
    for file, labels in cited.items():
        out += [f"{file} cites {label}, which is not on the page" for label in sorted(labels - by_label.keys())]
    return out + [f"{entry.label}: {what}" for entry in listed for what in problems_of(entry, by_label, cited)]


def test_page_and_code_agree():
    found = problems(PAGE, citations())
    assert not found, "\n".join(found)


def test_the_bound_cites_its_equations():
    assert {"eq:discrete-elbo-decomp", "eq:ELBO-generator-Dynkin"} <= citations()["objectives/bound.py"]


@pytest.mark.parametrize("folder", [DOCS, TESTS], ids=["docs", "tests"])
def test_labels_elsewhere_are_on_the_page(folder):
    known = {entry.label for entry in entries(PAGE)}
    for path in sorted([*folder.rglob("*.md"), *folder.rglob("*.py")]):
        if path != Path(__file__):
            unknown = set(LABEL.findall(path.read_text(encoding="utf-8").replace(r"\|", "|"))) - known
            assert not unknown, f"{path.relative_to(ROOT)} cites {sorted(unknown)}, which docs/equations.md does not have"


ACT = "| `eq:gen-def` |"
WRONG_PAGES = {
    "a symbol that is not there": ("Generator.act`", "Generator.acts`", "generator.py has no Generator.acts"),
    "a file that is not there": ("`laws.py: sum_", "`law.py: sum_", "there is no file law.py in src/unnoise"),
    "a place without a symbol": ("`laws.py: sum_coordinates`", "`laws.py`", "laws.py has no symbol"),
    "a test that is not there": ("test_tweedie`", "test_tweedle`", "has no test_tweedle"),
    "a row that verify does not print": ('verify "posterior mean', 'verify "prior mean', "no check of verify is called"),
    "a label less": (ACT, "| gen-def |", "175 lines of 175 labels"),
    "a label twice": (ACT, "| `eq:mlm-ELBO` |", "176 lines of 175 labels"),
    "a place in another file": ("`samplers/reveal.py: Reveal`", "`samplers/heun.py: Heun`", "heun.py cites eq:discrete-t"),
    "another twin": ("(= `eq:mlm-ELBO`)", "(= `eq:seq-elbo`)", "stands for eq:seq-elbo"),
    "no reason": ("a step in deriving the flow's density; nothing solves this equation", "later", "for no reason"),
    "no place": ("`samplers/reveal.py: Reveal`", "", "has no place"),
    "another number": (" are built, ", " were built, ", "the page says otherwise"),
}


@pytest.mark.parametrize("old, new, message", WRONG_PAGES.values(), ids=WRONG_PAGES)
def test_a_wrong_page_is_seen(old, new, message):
    assert old in PAGE
    assert any(re.search(message, found) for found in problems(PAGE.replace(old, new), citations()))


def test_wrong_code_is_seen():
    def with_bound(labels):
        return problems(PAGE, {**citations(), "objectives/bound.py": frozenset(labels)})

    own = citations()["objectives/bound.py"]
    assert any("eq:no-such-label, which is not on the page" in what for what in with_bound(own | {"eq:no-such-label"}))
    assert any("not built, but objectives/bound.py cites it" in what for what in with_bound(own | {"eq:reverse-ODE-KFE"}))
    assert any(re.search(r"none of .*objectives/bound.py.* cites eq:discrete-elbo-decomp", what) for what in with_bound(()))


def test_labels_are_found_in_text():
    text = "as (eq:t|s-dt-dp-transition), eq:apx:reverse-kernel-categorical: and eq:Qt|s-formula; not seq:first nor eq: -"
    assert LABEL.findall(text) == ["eq:t|s-dt-dp-transition", "eq:apx:reverse-kernel-categorical", "eq:Qt|s-formula"]
