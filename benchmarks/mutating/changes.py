"""The small mistakes that an expression can hold, as expressions to put in its place.

`changes(node)` is an open function of the node's class.  Each change is a word for it and the new expression; those that no
reader would make, or that are refused before they are run, are left out (the sum of two texts, the union of two types).
"""

import ast
from collections.abc import Iterator
from copy import copy
from functools import singledispatch

Change = tuple[str, ast.expr]

OPERATORS: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
COMPARISONS: dict[type, type] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
PAIRS = [
    ("min", "max"),
    ("minimum", "maximum"),
    ("clamp_min", "clamp_max"),
    ("amin", "amax"),
    ("argmin", "argmax"),
    ("exp", "expm1"),
    ("log", "log1p"),
    ("sqrt", "square"),
    ("sum", "mean"),
    ("any", "all"),
    ("sin", "cos"),
    ("floor", "ceil"),
    ("zeros", "ones"),
    ("zeros_like", "ones_like"),
    ("new_zeros", "new_ones"),
    ("double", "float"),
]
CALLS = {one: other for pair in PAIRS for one, other in (pair, pair[::-1])} | {"logsumexp": "sum", "cumsum": "cumprod"}
DROPPED = {"detach", "abs", "neg", "exp", "log", "clamp", "clamp_min", "clamp_max", "flip", "clone"}  # x.name(...) -> x


def replaced(node: ast.AST, **fields: object) -> ast.expr:
    """The same node with other fields."""
    new = copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new  # type: ignore[return-value]


def negated(test: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.Not(), test)


@singledispatch
def changes(node: ast.AST) -> Iterator[Change]:
    """None, unless its class has some."""
    yield from ()


def _is_text(node: ast.expr) -> bool:
    text = isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    return text or isinstance(node, ast.JoinedStr | ast.List | ast.Tuple | ast.ListComp)


def _is_type(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    none = isinstance(node, ast.Constant) and node.value is None
    return none or name[:1].isupper() or name in ("int", "float", "str", "bool", "dict", "list", "tuple")


@changes.register
def _(node: ast.BinOp) -> Iterator[Change]:
    sides = (node.left, node.right)
    if any(map(_is_text, sides)) or (isinstance(node.op, ast.BitOr) and any(map(_is_type, sides))):
        return
    if type(node.op) in OPERATORS:
        yield "operator", replaced(node, op=OPERATORS[type(node.op)]())
    if isinstance(node.op, ast.Add | ast.Sub):
        yield "term dropped", node.left
    if isinstance(node.op, ast.Add):
        yield "term dropped", node.right
    if isinstance(node.op, ast.Mult | ast.Div):
        yield "factor dropped", node.left


@changes.register
def _(node: ast.Compare) -> Iterator[Change]:
    for i, op in enumerate(node.ops):
        yield "comparison", replaced(node, ops=[*node.ops[:i], COMPARISONS[type(op)](), *node.ops[i + 1 :]])


@changes.register
def _(node: ast.BoolOp) -> Iterator[Change]:
    yield "and, or", replaced(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())


@changes.register
def _(node: ast.UnaryOp) -> Iterator[Change]:
    words = {ast.USub: "sign", ast.Not: "not dropped", ast.Invert: "not dropped"}
    if type(node.op) in words:
        yield words[type(node.op)], node.operand


@changes.register
def _(node: ast.Constant) -> Iterator[Change]:
    value = node.value
    if isinstance(value, bool):
        yield "constant", ast.Constant(not value)
    elif isinstance(value, int):
        yield "constant", ast.Constant(value + 1)
    elif isinstance(value, float):
        yield "constant", ast.Constant(value / 2 if value not in (0.0, 1.0) else value + 1)


@changes.register
def _(node: ast.Call) -> Iterator[Change]:
    function = node.func
    if isinstance(function, ast.Name) and function.id in CALLS:
        yield "function", replaced(node, func=replaced(function, id=CALLS[function.id]))
    if isinstance(function, ast.Attribute):
        if function.attr in CALLS:
            yield "function", replaced(node, func=replaced(function, attr=CALLS[function.attr]))
        if function.attr in DROPPED and not (isinstance(function.value, ast.Name) and function.value.id in ("torch", "np")):
            yield "call dropped", function.value
