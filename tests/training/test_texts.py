"""Prompts and gaps of text as strings: where every symbol says the next, a text comes out whole, whatever the symbols."""

import pytest
import torch

import unnoise as un
from unnoise.data import BadData
from unnoise.data.prompts import coded
from unnoise.data.sequences import END, Sequences
from unnoise.training.texts import continue_text, fill_text


def cycle(tmp_path, text, symbols=None, length=6, tokenizer=None):
    """A model of windows of a text that goes round, each symbol once: the exact one."""
    path = tmp_path / "a.txt"
    path.write_text(text * 20)
    form, x = Sequences.fit(path, "text", length, symbols, tokenizer, padded=False)
    size = len(form.alphabet)
    chain = torch.full((size, size), 1 / size, dtype=torch.float64)  # of what never occurs, such as a token that is not used
    row = x.flatten()
    for a in set(row.tolist()):
        chain[:, a] = torch.bincount(row[1:][row[:-1] == a], minlength=size).double().clamp(max=1)
    start = torch.bincount(row, minlength=size).double()
    return form, un.oracles.MarkovChain(form.process(), start / start.sum(), chain)


def words(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    tool = tokenizers.Tokenizer(tokenizers.models.WordLevel({"one": 0, "two": 1, "three": 2, "[UNK]": 3}, unk_token="[UNK]"))
    tool.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tool.save(str(tmp_path / "words.json"))
    return tmp_path / "words.json"


def test_prompts_of_any_length_go_on_for_as_long_as_asked(tmp_path):
    form, oracle = cycle(tmp_path, "abcdefg ")
    prompts = ["c", "abcdefg abcdefg abcdefg", "g ab", ""]
    found = continue_text(oracle, form, prompts, 25, seed=0, device="cpu")
    for prompt, text in zip(prompts[:3], found, strict=False):
        assert text.startswith(prompt) and len(text) == len(prompt) + 25 and text in "abcdefg " * 9
    assert len(found[3]) == 25 and found[3] in "abcdefg " * 9
    assert len(continue_text(oracle, form, ["a"], seed=0, device="cpu")[0]) == 1 + form.length
    with pytest.raises(ValueError, match="--length 0: draw at least one"):
        continue_text(oracle, form, ["a"], 0)


def test_gaps_of_any_length_are_filled_from_either_side(tmp_path):
    form, oracle = cycle(tmp_path, "abcdefg ")
    page = "abcdefg " * 6
    gappy = ["ab_d", "_" * 20 + "abc", page[:5] + "_" + page[6:20] + "_" * 4 + page[24:], "____g ab", "e" + "_" * 30, "abc"]
    found = fill_text(oracle, form, gappy, seed=0, device="cpu")
    assert found[0] == "abcd" and found[2] == page and found[3] == "cdefg ab" and found[5] == "abc"
    assert found[4] in page and len(found[4]) == 31
    assert found[1].endswith("abc") and found[1] in page and len(found[1]) == 23
    assert fill_text(oracle, form, ["ab?d"], "?", seed=0, device="cpu") == ["abcd"]


def test_bytes_and_tokens(tmp_path):
    form, oracle = cycle(tmp_path, "né!", "bytes")
    assert continue_text(oracle, form, ["né"], 8, seed=0, device="cpu") == ["né!né!né"]
    assert fill_text(oracle, form, ["né!n__!n"], seed=0, device="cpu") == ["né!né!n"]
    form, oracle = cycle(tmp_path, "one two three ", tokenizer=words(tmp_path), length=4)
    assert continue_text(oracle, form, ["two three"], 7, seed=0, device="cpu") == [
        "two three" + " one two three" * 2 + " one"
    ]
    assert fill_text(oracle, form, ["one  _ three one __"], seed=0, device="cpu") == ["one   two three one  two three"]


@pytest.mark.parametrize(
    ("symbols", "prompt", "named"),
    [("characters", "abßcÖß", "'ß', 'Ö'"), ("bytes", "née", "'e'"), ("tokens", "one four two", "'f', 'o', 'u', 'r'")],
)
def test_what_the_model_has_no_symbol_for_is_named(tmp_path, symbols, prompt, named):
    text = {"characters": "abc", "bytes": "né!", "tokens": "one two three "}[symbols]
    tokenizer = words(tmp_path) if symbols == "tokens" else None
    form, oracle = cycle(tmp_path, text, None if tokenizer else symbols, tokenizer=tokenizer)
    with pytest.raises(BadData) as error:
        continue_text(oracle, form, [prompt])
    assert f"the prompt holds {named}, not among the {len(form.alphabet)} symbols" in str(error.value)
    assert "\n" not in str(error.value)


class Flat(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.logits = torch.nn.Parameter(torch.zeros(size))

    def forward(self, x, t):
        return self.logits.expand(*x.shape, -1)


def test_a_padded_sequence_begins_by_the_prompt_and_ends_by_itself(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(["abcab", "ba", "cabcab"] * 5))
    form, _ = Sequences.fit(tmp_path / "a.txt", "text", padded=True)
    denoiser = un.Denoiser(Flat(len(form.alphabet)), form.process())
    found = continue_text(denoiser, form, ["ab"] * 40, seed=0, device="cpu")
    assert all(text.startswith("ab") and len(text) <= 6 for text in found)
    assert {len(text) for text in found} == {2, 3, 4, 5, 6}  # END anywhere, by a network that knows nothing
    filled = fill_text(denoiser, form, ["a_c", "__b", "a__"] * 9, seed=0, device="cpu")
    assert all(t[0] == "a" and t[2] == "c" and len(t) == 3 for t in filled[::3]) and all(t[2] == "b" for t in filled[1::3])
    assert min(map(len, filled[2::3])) == 1 and END not in "".join(filled)
    with pytest.raises(BadData, match="6 symbols, and the run's sequences have up to 6: shorten it"):
        continue_text(denoiser, form, ["abcabc"])
    with pytest.raises(ValueError, match="end by themselves"):
        continue_text(denoiser, form, ["a"], 9)
    with pytest.raises(BadData, match="text 1 has 7 symbols"):
        fill_text(denoiser, form, ["abcabc_"])


def test_molecules_and_other_data(tmp_path):
    (tmp_path / "m.csv").write_text("smiles\n" + "CCl\nBrCC\nCO\n" * 5)
    form, _ = Sequences.fit(tmp_path / "m.csv", "smiles")
    assert [form.alphabet[i] for i in coded(form, "BrCCl").tolist()] == ["Br", "C", "Cl"]
    with pytest.raises(BadData, match="holds 'N'"):
        coded(form, "CN")
    from unnoise.data import read

    (tmp_path / "t.csv").write_text("a,b\n" + "1,2\n3,4\n" * 9)
    table, _ = read(tmp_path / "t.csv")
    with pytest.raises(BadData, match="of the kind 'table'"):
        continue_text(un.Denoiser(Flat(3), un.Masking(3, 2)), table, ["a"])
