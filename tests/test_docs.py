"""The docs' code runs.

Every ```python block of README.md and docs/*.md is executed; the blocks of a page share one namespace, in order.  An
```output block says what the python block before it prints, and is compared with it.
"""

import contextlib
import io
import os
import re
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

import unnoise as un

ROOT = Path(__file__).parents[1]
SLOW = ("simulated.md", "finite-speed.md", "operators.md")  # pages whose code takes more than some seconds
PAGES = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if page.exists()]
BLOCK = re.compile(r"^```(python|output)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run_page(text: str, name: str) -> int:
    """Execute a page's blocks; raise with the page and the line of what fails.  Returns how many ran."""
    namespace: dict = {"__name__": "docs"}
    printed, count = "", 0
    for block in BLOCK.finditer(text):
        kind, body = block.groups()
        line = text.count("\n", 0, block.start(2))  # lines before the block's first
        if kind == "output":
            if printed.strip() != body.strip():
                pytest.fail(f"{name}:{line + 1}: the page says\n{body}\nbut the block before it prints\n{printed}", False)
            continue
        out, count = io.StringIO(), count + 1
        try:
            with contextlib.redirect_stdout(out):
                exec(compile("\n" * line + body, name, "exec"), namespace)
        except Exception as error:
            own = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == name]
            at = error.lineno if isinstance(error, SyntaxError) else own[-1] if own else line + 1
            pytest.fail(f"{name}:{at}: {type(error).__name__}: {error}", False)
        printed = out.getvalue()
    return count


def quick_or_slow(page):
    return pytest.param(page, marks=pytest.mark.conformance) if page.name in SLOW else page


@pytest.mark.parametrize("page", map(quick_or_slow, PAGES), ids=lambda page: page.name)
def test_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "examples"))  # pages import the modules that they show
    run_page(page.read_text(encoding="utf-8"), page.name)


@pytest.mark.parametrize("name", ["guide.md", "theory.md", "own-process.md"])
def test_pages_hold_code(name):
    assert "```python\n" in (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_runner_names_page_and_line():
    page = "text\n\n```python\na = 1\n```\n\n```python\nassert a == 1\n1 / 0\n```\n"
    with pytest.raises(pytest.fail.Exception, match=r"page\.md:9: ZeroDivisionError"):
        run_page(page, "page.md")
    with pytest.raises(pytest.fail.Exception, match=r"page\.md:6: the page says"):
        run_page("```python\nprint(1)\n```\n\n```output\n2\n```\n", "page.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pictures_are_there(page):
    for target in re.findall(r"!\[[^]]*\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} shows {target}, which is not there: run make pictures"


def test_pictures_are_shown_and_small():
    script = (ROOT / "docs" / "pictures.py").read_text(encoding="utf-8")
    shown = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    names = re.findall(r"^@picture\ndef (\w+)\(", script, re.MULTILINE)
    assert names
    for name in names:
        assert f"](pictures/{name}.png)" in shown, f"docs/pictures.py draws {name}, which no page shows"
        assert (ROOT / "docs" / "pictures" / f"{name}.png").stat().st_size < 60_000, f"{name}.png is larger than 60 KB"


def test_a_picture_is_drawn(tmp_path):
    """The quickest of them: the others are made alike, and take half a minute."""
    draw = "import pictures; pictures.FOLDER = pictures.Path(sys.argv[1]); pictures.main(['correlated'])"
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, 'docs'); {draw}", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr[-3000:]
    drawn, kept = ((folder / "correlated.png").read_bytes() for folder in (tmp_path, ROOT / "docs" / "pictures"))
    assert drawn[:24] == kept[:24]  # the signature, width and height


def test_every_process_has_a_page():
    pages = "".join(page.read_text(encoding="utf-8") for page in PAGES if page.name != "README.md")
    for name in un.__all__:
        exported = getattr(un, name)
        if isinstance(exported, type) and issubclass(exported, un.Process):
            assert f"`{name}" in pages, f"no page names {name}"


def test_own_process_page_shows_the_module():
    module = (ROOT / "docs" / "examples" / "own_process.py").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "own-process.md").read_text(encoding="utf-8")
    assert f"```python\n{module}```" in page, "docs/own-process.md and docs/examples/own_process.py differ"


def test_own_process_verifies():
    command = [sys.executable, "-m", "unnoise.cli", "verify", "--process", "own_process:process"]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}  # small tensors: more threads only wait for each other
    done = subprocess.run(
        command, cwd=ROOT / "docs" / "examples", env=one_thread, capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
