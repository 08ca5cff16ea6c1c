"""Samplers as they are written on a command line: read, never evaluated."""

import pytest

from unnoise import samplers as S
from unnoise.samplers.written import written


def test_names_and_calls():
    assert type(written("Heun")) is S.Heun
    assert type(written(" Ancestral( ) ")) is S.Ancestral
    assert written("Ancestral(rounds=2)").rounds == 2
    assert written("Ancestral(2)").rounds == 2
    assert written("Heun(churn=40, low=0.1, high=inf)").high == float("inf")
    reveal = written("Reveal(Tokens(temperature=0.7, top_p=None), by='margin')")
    assert reveal.tokens.temperature == 0.7 and reveal.tokens.top_p is None and reveal.by == "margin"
    nested = written("PredictorCorrector(Euler(), DetailedBalance(), rounds=3)")
    assert nested.rounds == 3 and type(nested.predictor) is S.Euler
    assert written("DPMSolverPP(3, clean=Clip(1.0))").clean is not None
    assert type(written("Remasking(Cap(0.1))").rule) is S.remasking.Cap


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Heun(", "cannot be read"),
        ("", "cannot be read"),
        ("Hoin", "there is no sampler 'Hoin'"),
        ("Ancestral(turns=2)", "turns"),
        ("Ancestral(1, 2)", "too many"),
        ("Ancestral(rounds=0)", "at least once"),
        ("Ancestral(rounds='two')", "Ancestral"),
        ("Tokens(0.5)", "is no sampler"),
        ("PredictorCorrector", "missing"),
        ("Ancestral(rounds=1+1)", "'1 \\+ 1'"),
        ("Ancestral(rounds=x)", "'x'"),
        ("Ancestral(**{'rounds': 2})", "arguments are"),
        ("Ancestral(rounds=[i for i in (1, 2)])", "arguments are"),
        ("os.system('true')", "os.system"),
        ("__import__('os').system('true')", "arguments are"),
        ("(lambda: 1)()", "arguments are"),
        ("eval('1')", "there is no sampler 'eval'"),
        ("print", "there is no sampler 'print'"),
        ("(" * 400 + ")" * 400, "cannot be read"),
    ],
)
def test_nothing_else_is_looked_at(text, words, capsys):
    with pytest.raises(ValueError, match=words):
        written(text)
    assert capsys.readouterr().out == ""
