"""Context-free languages on small alphabets: membership as lark's own parser has it, and the exact conditional law."""

from math import comb, log

import lark
import pytest
import torch
from enumerated import weighted_law

import unnoise as un
from unnoise.guidance.grammars import grammar

PAIRS = """
start: pair*
pair: "(" start ")"
"""
SUMS = """
start: term | start "+" term
term: "x" | "(" start ")"
"""
AMBIGUOUS = """
start: start start | "(" start? ")" | LETTERS
LETTERS: /x+/
"""
SPACED = """
start: "(" item ("," item)* ")"
item: "x"+
%ignore /-/
"""
CASES = {"pairs": (PAIRS, "()x"), "sums": (SUMS, "()+x"), "ambiguous": (AMBIGUOUS, "()x"), "ignored": (SPACED, "(),x-")}


def words_of(alphabet, length):
    return un.Masking(len(alphabet), (length,)).space.states()


def known(text, alphabet, words):
    """By lark's Earley parser."""
    parser = lark.Lark(text, parser="earley", lexer="dynamic_complete")

    def derives(word):
        try:
            parser.parse("".join(alphabet[i] for i in word))
        except lark.exceptions.LarkError:
            return False
        return True

    return torch.tensor([derives(word) for word in words.tolist()])


@pytest.mark.parametrize("case", CASES)
def test_words_are_those_of_larks_parser(case):
    text, alphabet = CASES[case]
    rule, lengths = grammar(text, alphabet), (1, 2, 4) if len(alphabet) > 4 else (1, 2, 3, 5)
    for length in lengths:
        words = words_of(alphabet, length)
        wanted = known(text, alphabet, words)
        assert torch.equal(rule.has(words), wanted)
        assert rule.reach(length) == bool(wanted.any())


@pytest.mark.parametrize("case", ["pairs", "sums"])
def test_messages_are_sums_over_all_words(case):
    """h and h^{l=v} of factorised laws, by listing all words, with a place known and one impossible category."""
    text, alphabet = CASES[case]
    rule, length, size = grammar(text, alphabet), 4 if case == "pairs" else 5, len(alphabet)
    theta = torch.rand(3, length, size, generator=torch.Generator().manual_seed(1)).double()
    theta[1, 0] = torch.nn.functional.one_hot(torch.tensor(alphabet.index("(")), size)
    theta[2, 1, alphabet.index("(")] = 0.0
    theta = theta / theta.sum(-1, keepdim=True)
    log_h, by = rule.messages(theta)
    words = words_of(alphabet, length)
    inside = rule.has(words)
    each = torch.stack([theta[:, i][:, words[:, i]] for i in range(length)], 2)
    h = (each.prod(2) * inside).sum(1)
    assert (log_h.exp() - h).abs().max() < 1e-12
    for row in (h > 0).nonzero().squeeze(1):
        for place in range(length):
            others = each[row][:, [i for i in range(length) if i != place]].prod(1) * inside
            put = torch.stack([others[words[:, place] == v].sum() for v in range(size)])
            assert (by[row, place].clamp_min(-700).exp() - put / h[row]).abs().max() < 1e-11 / float(h[row])


def table(process, seed):
    p = (
        torch.rand(process.space.size ** process.space.shape[0], generator=torch.Generator().manual_seed(seed)).double()
        + 0.05
    )
    return p / p.sum()


@pytest.mark.parametrize("case", ["pairs", "ambiguous"])
def test_law_is_the_conditional(case):
    text, alphabet = CASES[case]
    process = un.Masking(3, (4,))
    p, rule = table(process, 2), grammar(text, alphabet)
    law, z = weighted_law(un.targets.restricted(un.oracles.table(process, p), rule))
    wanted = p * rule.accepts(process.space.states())
    assert float((law / z - wanted / wanted.sum()).abs().sum() / 2) < 1e-12
    assert abs(z - float(wanted.sum())) < 1e-12


def test_the_end_of_what_is_written():
    """What follows END is not read: by listing all words of brackets and END."""
    process = un.Masking(3, (4,))
    rule = grammar(PAIRS, ["(", ")", "END"], end=2)
    words = process.space.states()
    texts = ["".join("()."[i] for i in word) for word in words.tolist()]
    inside = torch.tensor([text.split(".")[0] in ("", "()", "()()", "(())") for text in texts])
    assert torch.equal(rule.has(words), inside)
    p = table(process, 3)
    law, z = weighted_law(un.targets.restricted(un.oracles.table(process, p), rule))
    assert float((law / z - p * inside / (p * inside).sum()).abs().sum() / 2) < 1e-12
    theta = torch.tensor([[[0.5, 0.2, 0.3]] * 4], dtype=torch.float64)
    by_words = sum(
        0.5 ** t.count("(") * 0.2 ** t.count(")") * 0.3 ** t.count(".") for t, yes in zip(texts, inside, strict=True) if yes
    )
    log_h, _ = rule.messages(theta)
    assert float(log_h) == pytest.approx(log(by_words), rel=1e-12)


def test_brackets_of_length_64_are_counted():
    """Of independent places h is the number of words, a Catalan number, times the probability of each."""
    rule, theta = grammar(PAIRS, "()ab"), torch.full((1, 64, 4), 0.25, dtype=torch.float64)
    log_h, by = rule.messages(theta)
    assert float(log_h) == pytest.approx(log(comb(64, 32) / 33) - 64 * log(4), rel=1e-12)
    assert by[0, 0].exp().tolist() == pytest.approx([4.0, 0, 0, 0], abs=1e-12)  # a word begins with a bracket


def test_every_sample_is_derived():
    process = un.Masking(4, (14,))
    model = un.oracles.MarkovChain(process, torch.full((4,), 0.25), torch.full((4, 4), 0.25))
    rule = grammar(PAIRS, "()ab")
    x, info = un.sample(un.targets.restricted(model, rule), n=20, seed=0, sampler=un.samplers.Particles(1))
    assert bool(rule.accepts(x).all()) and len({tuple(row) for row in x.tolist()}) > 5
    log_z, _ = info.particles.estimate()
    assert log_z == pytest.approx(log(comb(14, 7) / 8) - 14 * log(4), rel=1e-9)  # h needs no correction on the way


def test_words_of_several_letters():
    """Bonds and brackets of molecules: a symbol may be of several characters."""
    rule = grammar('start: atom+\natom: "C" | "Cl" | "[NH+]" | "(" atom+ ")"', ["C", "Cl", "[NH+]", "(", ")"])
    assert rule.has(torch.tensor([[0, 1, 2], [3, 0, 4], [3, 4, 0], [0, 3, 0]])).tolist() == [True, True, False, False]


def test_bad_grammars_are_refused():
    with pytest.raises(ValueError, match="cannot be read"):
        grammar("start: (", "ab")
    with pytest.raises(ValueError, match="cannot be read"):
        grammar('begin: "a"', "ab")
    model = un.oracles.table(un.Masking(2, (3,)), torch.ones(8) / 8)
    with pytest.raises(TypeError, match="accepts no sequence of length 3"):
        un.targets.restricted(model, grammar('start: "a" "b"', "ab"))
