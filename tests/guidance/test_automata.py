"""Regular languages on small alphabets: samples belong, and their law is the exact conditional."""

from math import log

import pytest
import torch
from enumerated import weighted_law

import unnoise as un
from unnoise.guidance.automata import messages

LETTERS = "abc"


def chain(length, seed=0):
    """A Markov chain of letters, as an oracle under masking."""
    generator = torch.Generator().manual_seed(seed)
    start, move = torch.rand(3, generator=generator).double(), torch.rand(3, 3, generator=generator).double() + 0.1
    start, move = start / start.sum(), move / move.sum(0)
    process = un.Masking(3, (length,))
    states = process.space.states()
    p = start[states[:, 0]]
    for i in range(1, length):
        p = p * move[states[:, i], states[:, i - 1]]
    return process, p, un.oracles.table(process, p)


PATTERNS = {
    "a.*c": lambda word: word[0] == "a" and word[-1] == "c",
    "(ab|c)*": lambda word: word.replace("ab", "").strip("c") == "" or _of(word, ["ab", "c"]),
    "[^b]*b[^b]*": lambda word: word.count("b") == 1,
    ".*(aa|bb).*": lambda word: "aa" in word or "bb" in word,
}


def _of(word, parts):
    return word == "" or any(word.startswith(p) and _of(word[len(p) :], parts) for p in parts)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_law_is_the_conditional(pattern):
    process, p, model = chain(4)
    rule = un.guidance.regular(pattern, LETTERS)
    words = ["".join(LETTERS[i] for i in word) for word in process.space.states().tolist()]
    inside = torch.tensor([bool(PATTERNS[pattern](word)) for word in words])
    assert torch.equal(rule.accepts(process.space.states()), inside)
    law, z = weighted_law(un.targets.restricted(model, rule))
    wanted = p * inside
    assert float((law / z - wanted / wanted.sum()).abs().sum() / 2) < 1e-12
    assert abs(z - float(wanted.sum())) < 1e-12


def test_every_sample_matches_and_the_probability_is_told():
    process, p, model = chain(5)
    rule = un.guidance.regular("(a|bc)*", LETTERS)
    x, info = un.sample(un.targets.restricted(model, rule), n=300, seed=0, sampler=un.samplers.Particles(8))
    assert bool(rule.accepts(x).all())
    log_z, error = info.particles.estimate()
    wanted = float((p * rule.accepts(process.space.states())).sum().log())
    assert abs(log_z - wanted) < 4 * error < 0.2


def test_messages_are_sums_over_all_words():
    """h and h^{l=v} of factorised laws, by listing all words."""
    generator = torch.Generator().manual_seed(1)
    theta = torch.rand(2, 4, 3, generator=generator).double()
    theta = theta / theta.sum(-1, keepdim=True)
    rule = un.guidance.regular("a*(bc|c)?b?", LETTERS)
    log_h, by = messages(theta, rule.table, rule.accept, rule.start)
    words = un.Masking(3, (4,)).space.states()
    inside = rule.accepts(words)
    each = torch.stack([theta[:, i][:, words[:, i]] for i in range(4)], 2)  # [rows, words, places]
    h = (each.prod(2) * inside).sum(1)
    assert (log_h.exp() / h - 1).abs().max() < 1e-12
    for place in range(4):
        others = each[:, :, [i for i in range(4) if i != place]].prod(2) * inside
        put = torch.stack([others[:, words[:, place] == v].sum(1) for v in range(3)], 1)
        found = torch.where(by[:, place] > -1e29, by[:, place], -torch.inf).exp()
        assert (found - put / h.unsqueeze(1)).abs().max() < 1e-12


def test_words_of_several_letters_and_long_sequences():
    rule = un.guidance.regular("(ab)*c", ["ab", "c", "x"])
    assert rule.accepts(torch.tensor([[0, 0, 1], [0, 1, 1], [0, 2, 1], [1, 1, 1]])).tolist() == [True, False, False, False]
    theta = torch.full((1, 200, 3), 1 / 3, dtype=torch.float64)
    log_h, by = messages(theta, rule.table, rule.accept, rule.start)
    assert float(log_h) == pytest.approx(-200 * log(3), rel=1e-9)  # one word
    assert (by[0, :, 0].argmax() >= 0) and bool((by[0, :-1, 1] < -1e29).all())


def test_one_leaf_of_a_product():
    process = un.Product(size=un.Gaussian((1,)), word=un.Masking(3, (2,)))
    leaves = {
        "size": un.oracles.GaussianLeaf(torch.zeros(1, 1).double(), torch.ones(1, 1, 1).double()),
        "word": un.oracles.CategoricalLeaf(torch.full((1, 2, 3), 1 / 3).double().log()),
    }
    model = un.oracles.Components(process, torch.ones(1), leaves)
    rule = un.guidance.regular("a[bc]", LETTERS, leaf="word")
    x, info = un.sample(un.targets.restricted(model, rule), n=50, steps=8, seed=0, sampler=un.samplers.Particles(4))
    assert bool((x["word"][:, 0] == 0).all() and (x["word"][:, 1] > 0).all())
    assert abs(info.particles.estimate()[0] - float(torch.tensor(2 / 9).log())) < 0.5
    with pytest.raises(TypeError, match="there is no leaf 'text'"):
        un.targets.restricted(model, un.guidance.regular("ab", LETTERS, leaf="text"))
    with pytest.raises(TypeError, match="name its leaf"):
        un.targets.restricted(model, un.guidance.regular("ab", LETTERS))


def test_bad_patterns_and_tables_are_refused():
    process, _, model = chain(3)
    with pytest.raises(ValueError, match="cannot be read"):
        un.guidance.regular("(a", LETTERS)
    with pytest.raises(TypeError, match="accepts no sequence of length 3"):
        un.targets.restricted(model, un.guidance.regular("ab", LETTERS))
    with pytest.raises(TypeError, match="reads 2 categories"):
        un.targets.restricted(model, un.guidance.regular("a*", "ab"))
    with pytest.raises(ValueError, match="outside of its 2 states"):
        un.guidance.Automaton([[0, 5], [1, 1]], [True, False])
    with pytest.raises(TypeError, match="masks nothing"):
        un.targets.restricted(un.oracles.table(un.Uniform(3, (3,)), torch.ones(27) / 27), un.guidance.regular("a*", LETTERS))
