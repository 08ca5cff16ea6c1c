"""Regular expressions as tables: the words of Python's own matcher, by as few states as can be, and too many refused."""

import re
from itertools import product

import pytest
import torch

import unnoise as un
from unnoise.guidance import machines
from unnoise.guidance.machines import fewest, spelled

PATTERNS = ["a.*(bb|cc).*", ".{1,3}ab.{0,2}a.*", "(a|bc)*", "[^a]+a?", "(ab?c|c{2,3})+", "", "a(?=b).*", "abc|abc.*|b"]


def accepted(next, accept, word):
    state = 0
    for v in word:
        state = next[state][v]
        if state < 0:
            return False
    return accept[state]


def wrong(pattern, most=6):
    next, accept = spelled(pattern, "abc", "regular expressions")
    words = (word for length in range(most + 1) for word in product(range(3), repeat=length))
    return sum(accepted(next, accept, w) != bool(re.fullmatch(pattern, "".join("abc"[v] for v in w))) for w in words)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_words_are_those_of_another_matcher(pattern):
    assert wrong(pattern) == 0


def test_states_that_are_not_split_accept_other_words(monkeypatch):
    """A mutant: those that accept are one, and so are those that do not."""
    monkeypatch.setattr(machines, "_split", lambda of, table: of)
    assert all(wrong(pattern) > 0 for pattern in PATTERNS[2:5])


@pytest.mark.parametrize(
    "pattern, states",
    [
        (".*a.{3}", 2**4),  # which of the last four symbols were a
        (".{20}a.*", 22),  # how many symbols, then whether it was a; the reverse of this one has 2^21
        ("(a|b|c)*", 1),
        ("a{7}", 8),
        (".{0,30}aabbac.{16,18}babbac.*", None),  # two gaps of unknown length
    ],
)
def test_states_are_as_few_as_words_that_differ(pattern, states):
    next, accept = spelled(pattern, "abc", "regular expressions")
    if states is not None:
        assert len(accept) == states
    same, ends = fewest(next, accept)
    assert len(ends) == len(accept) and same == next


def test_words_of_several_characters():
    next, accept = spelled("(ab)*c?", ["ab", "c", "a", ""], "regular expressions")
    assert (next, accept) == ([[0, 1, -1, -1], [-1, -1, -1, -1]], [True, True])


@pytest.mark.parametrize("pattern", [".*a.{30}", "a{100000}"])
def test_too_many_states_are_refused_at_once(pattern):
    import interegular

    kept = interegular.fsm.crawl
    with pytest.raises(ValueError, match=r"has more than 20,000 states: give its gaps one length"):
        un.guidance.regular(pattern, "abc")
    assert interegular.fsm.crawl is kept


@pytest.mark.parametrize("pattern", ["[", "(a", "*a"])
def test_what_cannot_be_read_says_why(pattern):
    with pytest.raises(ValueError, match=r"cannot be read: InvalidSyntax; is a bracket open"):
        un.guidance.regular(pattern, "abc")


def test_letters_that_the_alphabet_lacks():
    with pytest.raises(ValueError, match="'xyz' matches nothing that is written in 'a', 'b', 'c'"):
        un.guidance.regular("xyz", "abc")
    with pytest.raises(ValueError, match="the alphabet is empty"):
        un.guidance.regular("a", "")


def test_rows_are_read_in_parts(monkeypatch):
    """To the bit what all of them at once give."""
    rule = un.guidance.regular(".*ab.*", "abc")
    theta = torch.rand(5, 6, 3, generator=torch.Generator().manual_seed(0)).double()
    whole = rule.messages(theta)
    monkeypatch.setattr("unnoise.guidance.automata.AT_ONCE", 1)
    assert all(torch.equal(a, b) for a, b in zip(whole, rule.messages(theta), strict=True))
