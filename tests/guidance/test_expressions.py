"""Rules as trees: what they are, and what is no rule, with its place."""

import pytest

from unnoise.data.base import BadData
from unnoise.guidance import expressions as written
from unnoise.guidance.expressions import parsed


def shown(node):
    """A tree with all its parentheses."""
    match node:
        case written.NumberWritten() | written.TextWritten():
            return node.text
        case written.NameWritten():
            return node.name
        case written.Arithmetic():
            return f"({shown(node.left)}{node.sign}{shown(node.right)})"
        case written.Comparison():
            signs = (*node.signs, "")
            return "[" + "".join(shown(one) + sign for one, sign in zip(node.operands, signs, strict=True)) + "]"
        case written.Membership():
            return f"[{shown(node.operand)} in {','.join(map(shown, node.options))}]"
        case written.Missing():
            return f"[{shown(node.operand)} missing]"
        case written.Negation():
            return f"not {shown(node.part)}"
    sign = " and " if isinstance(node, written.Conjunction) else " or "
    return "(" + sign.join(map(shown, node.parts)) + ")"


@pytest.mark.parametrize(
    ("rule", "tree"),
    [
        ("a > 1 and b == 'x' or not c < 2", "(([a>1] and [b==x]) or not [c<2])"),
        ("a > 1 and (b == 'x' or c < 2)", "([a>1] and ([b==x] or [c<2]))"),
        ("not a > 1 and b < 2", "(not [a>1] and [b<2])"),
        ("18 <= age < 65", "[18<=age<65]"),
        ("a + 2 * b - c / 4 >= -1.5e3", "[((a+(2*b))-(c/4))>=-1.5e3]"),
        ("-a - -2 == --3", "[((0-a)--2)==3]"),
        ("(a + b) * 2 != c", "[((a+b)*2)!=c]"),
        ("a in ('x', \"it's\", -2)", "[a in x,it's,-2]"),
        ("a not in ['x']", "not [a in x]"),
        ("`hours per-week` is missing and b is not missing", "([hours per-week missing] and not [b missing])"),
        ("größe > 1\n and x", "([größe>1] and x)"),
    ],
)
def test_trees(rule, tree):
    assert shown(parsed(rule)) == tree


@pytest.mark.parametrize(
    ("rule", "said", "marked"),
    [
        ("(a > 1", "nothing closes this (", "("),
        ("a > 1)", "nothing opens this )", ")"),
        ("a in ('x'", "nothing closes this (", "("),
        ("a in ('x' 'y')", "'y' stands where ) or a sign is expected", "'y'"),
        ("a in ()", "empty list", "()"),
        ("a = 1", "compare with ==", "="),
        ("a > 1 & b > 2", "write and", "&"),
        ("a == 'x", "close the quotes", "'"),
        ("a.b > 1", "no attributes", "."),
        ("f(a) > 1", "a rule calls nothing", "f("),
        ("(f)(a)", "a rule calls nothing", "("),
        ("lambda x: 1", "':' cannot be read", ":"),
        ("a > 1 AND b", "join them by and", "AND"),
        ("a > 1 b > 2", "b follows what is complete", "b"),
        ("a >", "the rule ends where a column, a number or a text is expected", " "),
        ("a is 3", "after `is` comes missing", "3"),
        ("a in 3", "values in parentheses", "3"),
        ("a[0] > 1", "follows what is complete", "["),
    ],
)
def test_what_is_no_rule_is_shown_with_its_place(rule, said, marked):
    with pytest.raises(BadData) as error:
        parsed(rule)
    message, line, carets = str(error.value).splitlines()
    assert said in message
    start = carets.index("^")
    assert (line + " ")[start : start + carets.count("^")] == marked


def test_nothing_is_too_deep_or_too_long_to_be_refused():
    for rule in ("(" * 5000 + "a", "not " * 5000 + "a", "-" * 5000 + "a > 1", "a > 1" + " + 1" * 5000, ""):
        with pytest.raises(BadData, match="where"):
            parsed(rule)
    assert len(parsed(f"a in ({', '.join(map(str, range(5000)))})").options) == 5000
