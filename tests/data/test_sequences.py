"""Text, FASTA and SMILES: there and back, and files that are no such thing."""

import gzip
import json

import pytest
import torch

import unnoise as un
from unnoise.data.base import BadData
from unnoise.data.read import Reading, read
from unnoise.data.sequences import END, Sequences, is_smiles_table


def put(folder, name: str, content: str | bytes):
    data = content.encode() if isinstance(content, str) else content
    path = folder / name
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def test_a_text_is_cut_into_windows(tmp_path):
    text = "the quick brown fox jumps over the lazy dog " * 9
    form, x = Sequences.fit(put(tmp_path, "a.txt.gz", text), "text", length=20)
    assert x.shape == (len(text) // 20, 20) and not form.padded
    assert "".join(form.texts(x)) == text[: len(x) * 20]
    assert form.alphabet == sorted(set(text))
    assert form.process().space.size == len(set(text)) and form.process().space.shape == (20,)
    again = Sequences.from_json(json.loads(json.dumps(form.to_json())))
    assert torch.equal(again.encode(tmp_path / "a.txt.gz"), x)


def test_bytes_hold_any_text(tmp_path):
    text = "Füße, 漢字 and 🙂!" * 20
    form, x = Sequences.fit(put(tmp_path, "a.txt", text), "text", length=len(text.encode()), symbols="bytes")
    assert form.texts(x) == [text]
    many = "".join(chr(c) for c in range(0x4E00, 0x4E00 + 600))
    assert Sequences.fit(put(tmp_path, "b.txt", many), "text", length=10)[0].symbols == "bytes"


def test_lines_are_padded(tmp_path):
    words = ["one", "three", "seventeen", "a"] * 4
    form, x = Sequences.fit(put(tmp_path, "a.txt", "\n".join(words)), "text", padded=True)
    assert x.shape == (16, 9) and form.alphabet[-1] == END
    assert form.texts(x) == words
    form.write(x, tmp_path / "out.txt")
    assert (tmp_path / "out.txt").read_text().split() == words


def test_fasta(tmp_path):
    genome = "ACGTTGCA" * 40
    path = put(tmp_path, "g.fa", ">one genome\n" + "\n".join(genome[i : i + 60] for i in range(0, 320, 60)).lower() + "\n")
    form, x = Sequences.fit(path, "fasta", length=32)
    assert form.alphabet == list("ACGT") and "".join(form.texts(x)) == genome
    form.write(x, tmp_path / "out.fa")
    assert torch.equal(form.encode(tmp_path / "out.fa"), x)
    proteins = "".join(f">p{i}\n{'MKV' * (i + 1)}\n" for i in range(10))
    form, x = Sequences.fit(put(tmp_path, "p.faa", proteins), "fasta")
    assert form.padded and form.texts(x)[4] == "MKV" * 5


def test_smiles(tmp_path):
    molecules = ["CC(=O)Oc1ccccc1C(=O)O", "C[C@@H](N)C(=O)O", "BrCCl", "c1ccc2[nH]ccc2c1"] * 3
    path = put(tmp_path, "m.csv", "SMILES,split\n" + "\n".join(f"{m},train" for m in molecules))
    assert is_smiles_table(path)
    form, x = Sequences.fit(path, "smiles")
    assert form.texts(x) == molecules and {"Br", "Cl", "[nH]", "[C@@H]"} <= set(form.alphabet)
    form.write(x, tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text().splitlines() == ["SMILES", *molecules]


def test_a_tokenizer_file(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    tool = tokenizers.Tokenizer(tokenizers.models.BPE())
    tool.pre_tokenizer, tool.decoder = tokenizers.pre_tokenizers.ByteLevel(), tokenizers.decoders.ByteLevel()
    text = "low lower lowest new newer newest " * 30
    tool.train_from_iterator([text], tokenizers.trainers.BpeTrainer(vocab_size=300, show_progress=False))
    tool.save(str(tmp_path / "tokenizer.json"))
    form, x = Sequences.fit(put(tmp_path, "a.txt", text), "text", length=8, tokenizer=tmp_path / "tokenizer.json")
    assert "".join(form.texts(x)).split() == text.split()[: len("".join(form.texts(x)).split())]
    assert form.process().space.size == tool.get_vocab_size()
    again = Sequences.from_json(json.loads(json.dumps(form.to_json())))
    assert torch.equal(again.encode(tmp_path / "a.txt"), x)


def test_uniform_noise_is_a_choice(tmp_path):
    path = put(tmp_path, "a.txt", "abcabcabc" * 9)
    form, x = read(path, Reading(length=9, noise="uniform"))
    assert isinstance(form.process(), un.Uniform) and form.lines()[0].process == "Uniform"
    assert isinstance(Sequences.from_json(json.loads(json.dumps(form.to_json()))).process(), un.Uniform)
    assert isinstance(read(path, Reading(length=9))[0].process(), un.Masking)
    with pytest.raises(BadData, match="masking or uniform"):
        read(path, Reading(length=9, noise="loud"))
    with pytest.raises(BadData, match="is for sequences"):
        read(put(tmp_path, "b.csv", "a\n1\n2\n"), Reading(noise="uniform"))


@pytest.mark.parametrize(
    "name, content, form, words",
    [
        ("a.txt", b"", "text", "empty"),
        ("a.txt", b"abc\x00\x01\xff", "text", "is no text"),
        ("a.txt", "Stra\xdfe".encode("latin-1"), "text", "byte 4 (0xdf) is not utf-8"),
        ("a.txt", "short", "text", "smaller --length"),
        ("a.fa", ">x\nACGT12\n", "fasta", "line 2 holds '1'"),
        ("a.fa", "ACGT\n", "fasta", "before the first '>'"),
        ("a.fa", ">x\n>y\n", "fasta", "no sequence"),
        ("a.csv", "name,smiles\nx\n", "smiles", "row 2"),
        ("a.csv", "name,other\nx,y\n", "smiles", "no column 'smiles'"),
        ("a.csv", "smiles\nC C\n", "smiles", "no SMILES string"),
    ],
)
def test_bad_files(tmp_path, name, content, form, words):
    length = 10 if words == "smaller --length" else None
    with pytest.raises(BadData) as error:
        Sequences.fit(put(tmp_path, name, content), form, length)
    assert words in str(error.value) and str(tmp_path / name) in str(error.value) and "\n" not in str(error.value)


def test_a_cut_gzip_file(tmp_path):
    path = put(tmp_path, "a.txt.gz", "abc" * 5000)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(BadData, match="damaged or cut off"):
        Sequences.fit(path, "text")


def test_a_symbol_that_the_model_does_not_know(tmp_path):
    form, _ = Sequences.fit(put(tmp_path, "a.txt", "abcabcabc"), "text", length=3)
    with pytest.raises(BadData, match="holds 'z'"):
        form.encode(put(tmp_path, "b.txt", "abcz"))
