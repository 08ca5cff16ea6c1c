"""Where a source file can be changed: its expressions, but for what is no computation.

Left out are docstrings, annotations, decorators, f-strings, `raise` and `assert` (messages), what is printed or warned of,
`__repr__`, and code for type checkers.  A mutant replaces the bytes of one expression, so that all else stays as it was
written.
"""

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mutating.changes import changes, negated

SILENT = {"print", "warn", "cast", "TypeVar", "getLogger", "remedy"}
UNTESTED = {"__repr__", "__str__"}
PLAIN = (ast.Call, ast.Constant, ast.Name, ast.Attribute, ast.Subscript)


@dataclass(frozen=True)
class Mutant:
    """One expression of one file, in other words; `ran` are lines of which a test runs one if it runs the expression."""

    path: str  # from the root
    line: int
    start: int  # bytes
    end: int
    what: str
    old: str
    new: str
    ran: tuple[int, int]
    imported: bool  # at import: then every test that runs a function of the file runs it

    @property
    def name(self) -> str:
        return f"{self.path}:{self.line}: {self.what}: {' '.join(self.old.split())} -> {' '.join(self.new.split())}"

    def applied(self, source: bytes) -> bytes:
        return source[: self.start] + self.new.encode() + source[self.end :]

    def lines(self, source: bytes) -> tuple[str, str]:
        """The lines that it stands in, before and after."""
        first, last = source.rfind(b"\n", 0, self.start) + 1, source.find(b"\n", self.end)
        head, tail = source[first : self.start].decode(), source[self.end : last].decode()
        return head + self.old + tail, head + self.new + tail


class _Walk(ast.NodeVisitor):
    def __init__(self, path: str, source: bytes):
        self.path, self.source, self.found = path, source, []
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.ran, self.imported = (1, 1), True

    def add(self, node: ast.expr, what: str, new: ast.expr) -> None:
        start = self.starts[node.lineno - 1] + node.col_offset
        end = self.starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        old, text = self.source[start:end].decode(), ast.unparse(new)
        text = text if isinstance(new, PLAIN) else f"({text})"
        self.found.append(Mutant(self.path, node.lineno, start, end, what, old, text, self.ran, self.imported))

    @contextmanager
    def within(self, first: int, last: int, imported: bool) -> Iterator[None]:
        kept = self.ran, self.imported
        self.ran, self.imported = (first, last), imported
        yield
        self.ran, self.imported = kept

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.stmt) and not isinstance(node, ast.FunctionDef | ast.ClassDef):
            body = getattr(node, "body", None)  # of a compound statement only the header is run with it
            last = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno
            with self.within(node.lineno, last, self.imported):
                self.step(node)
        else:
            self.step(node)

    def step(self, node: ast.AST) -> None:
        if isinstance(node, ast.expr):
            for what, new in changes(node):
                self.add(node, what, new)
        if isinstance(node, ast.If | ast.While | ast.IfExp) and not turned(node.test):
            self.add(node.test, "condition", negated(node.test))
        super().visit(node)

    # --- what is left out

    def nothing(self, node: ast.AST) -> None:
        pass

    visit_Raise = visit_Assert = visit_JoinedStr = visit_Import = visit_ImportFrom = visit_Match = nothing

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" not in ast.dump(node.test):
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if name not in SILENT and not name.endswith("Error"):
            self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name in UNTESTED:
            return
        with self.within(node.body[0].lineno, node.end_lineno or node.lineno, False):
            for default in [*node.args.defaults, *node.args.kw_defaults]:
                if default is not None:
                    self.visit(default)
            for statement in node.body:
                self.visit(statement)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            self.visit(statement)


def turned(test: ast.expr) -> bool:
    """Whether one of the changes is the negation already."""
    if isinstance(test, ast.Compare):
        return len(test.ops) == 1 and not isinstance(test.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE)
    return isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)


def mutants_of(root: Path, path: Path) -> list[Mutant]:
    """All of a file's, in the order of its lines."""
    source = path.read_bytes()
    walk = _Walk(path.relative_to(root).as_posix(), source)
    walk.visit(ast.parse(source))
    changed = {m for m in walk.found if m.old != m.new}
    return sorted(changed, key=lambda m: (m.start, m.end, m.what, m.new))


def files_of(root: Path, only: list[str]) -> list[Path]:
    """Python files under src/PACKAGE: those of the named modules and packages, or all."""
    files = sorted((root / "src").glob("*/**/*.py"))
    return [f for f in files if not only or f.relative_to(root / "src").parts[1].removesuffix(".py") in only]
