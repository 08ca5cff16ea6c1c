"""A sampler as it is written: `Ancestral(rounds=2)`, `Reveal(Tokens(temperature=0.7))`.  It is read, never evaluated.

What may stand there: the name of a registered sampler, or a call of one whose arguments are numbers, words in quotes, True,
False, None, lists and tuples of them, and further calls, of samplers or of the parts that samplers are made of (how tokens
are drawn, correctors, rules of remasking; `register_part` adds to them).  Nothing else is looked at: no attribute, no
operator but a sign, no name from anywhere else.
"""

import ast
from collections.abc import Callable
from inspect import signature
from typing import Any

from unnoise.samplers.base import Sampler
from unnoise.samplers.registry import choices, kind_named

_PARTS: dict[str, type[Any]] = {}


def register_part(name: str) -> Callable[[type[Any]], type[Any]]:
    """A decorator: what arguments of a written sampler may be, besides samplers."""

    def register(kind: type[Any]) -> type[Any]:
        _PARTS[name] = kind
        return kind

    return register


def written(text: str) -> Sampler:
    """The sampler that is written."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        why = "write a name, or a call such as Ancestral(rounds=2)"
        raise ValueError(f"--sampler {text!r} cannot be read: {why}") from error
    if isinstance(tree, ast.Name):
        tree = ast.Call(tree, [], [])
    made = _made(tree, text)
    if not isinstance(made, Sampler):
        raise ValueError(f"{text} is no sampler: choose from {', '.join(choices())}")
    return made


def _value(node: ast.expr, text: str) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float | str | None):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return -_value(node.operand, text)
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(part, text) for part in node.elts]
    if isinstance(node, ast.Name) and node.id == "inf":
        return float("inf")
    return _made(node, text)


def _made(node: ast.expr, text: str) -> Any:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or not all(word.arg for word in node.keywords):
        raise ValueError(
            f"{ast.unparse(node)!r} in --sampler {text!r}: arguments are numbers, words in quotes, lists of them, or calls, "
            f"such as Tokens(temperature=0.7)"
        )
    name = node.func.id
    kind = _PARTS.get(name) or kind_named(name)
    positional = [_value(part, text) for part in node.args]
    named = {str(word.arg): _value(word.value, text) for word in node.keywords}
    try:
        given = signature(kind).bind(*positional, **named)
    except TypeError as error:
        raise ValueError(f"{name}{signature(kind)} in --sampler {text!r}: {error}") from error
    for key, value in given.arguments.items():
        if signature(kind).parameters[key].annotation in (float, "float") and type(value) is int:
            given.arguments[key] = float(value)
    try:
        return kind(*given.args, **given.kwargs)
    except TypeError as error:
        raise ValueError(f"{ast.unparse(node)} in --sampler {text!r}: {error}") from error
