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


def test_what_is_left_out_and_cut_is_said(tmp_path):
    molecules = ["CCO", "BrCCl", "c1ccccc1", "CC(=O)O"] * 5
    path = put(tmp_path, "m.csv", "name,smiles\n" + "".join(f"m{i},{m}\n" for i, m in enumerate(molecules)))
    form, _ = read(path, Reading(length=5))
    assert [(line.part, line.kind) for line in form.lines()] == [
        ("smiles", "smiles, padded to 5, 10 longer ones cut"),
        ("name", "left out"),
    ]
    assert Sequences.from_json(json.loads(json.dumps(form.to_json()))).lines() == form.lines()
    form, _ = read(put(tmp_path, "a.txt", "ab\n" * 3 + "a" * 1025 + "\n" + "b" * 1024), Reading(padded=True))
    assert [line.kind for line in form.lines()] == ["characters, padded to 1024, 1 longer ones cut"]
    for path in (put(tmp_path, "b.csv", "smiles\nCCO\nCCC\n"), put(tmp_path, "b.txt", "abc" * 99)):
        form, _ = read(path)
        assert len(form.lines()) == 1 and "cut" not in form.lines()[0].kind


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_molecules_between_other_separators_and_blank_lines(tmp_path, separator):
    molecules = ["CCO", "BrCCl", "c1ccccc1", "CC(=O)O"] * 5
    lines = [f"smiles{separator}logp", *[f"{m}{separator}0.{i}" for i, m in enumerate(molecules)]]
    form, x = read(put(tmp_path, "m.csv", "\n" + "\n".join(lines) + "\n\n"))
    assert isinstance(form, Sequences) and form.texts(x) == molecules and form.dropped == "logp"
    source = put(tmp_path, "g.csv", f"\nlogp{separator}smiles\n0.1{separator}C_O\n\n")
    assert filled(form, source, tmp_path / "out.csv", ["C"]) == f"\nlogp{separator}smiles\n0.1{separator}CCO\n\n"


def test_samples_have_the_suffix_of_the_data(tmp_path):
    files = {"a.txt": "abc" * 99, "a.fa": ">x\n" + "ACGT" * 99, "a.csv": "smiles\nCCO\nCCC\n"}
    assert [read(put(tmp_path, name, content))[0].suffix for name, content in files.items()] == [".txt", ".fa", ".csv"]


@pytest.mark.parametrize(
    "name, content, good, bad, words",
    [
        ("a.txt", "abc" * 99, ["s.txt", "s.md", "s", "s.txt.gz"], ["s.parquet", "s.csv", "s.fa", "s.npy.gz"], "text is"),
        ("a.fa", ">x\n" + "ACGT" * 99, ["s.fa", "s.faa.gz", "s.fasta", "s.fna"], ["s.csv", "s.png"], "FASTA is"),
        ("a.csv", "smiles\nCCO\nCCC\n", ["s.csv", "s.csv.gz", "s.smi"], ["s.parquet", "s.tsv", "s.txt"], "molecules are"),
    ],
)
def test_names_that_are_none_of_sequences(tmp_path, name, content, good, bad, words):
    form, _ = read(put(tmp_path, name, content))
    for out in good:
        form.check_out(tmp_path / out)
    for out in bad:
        with pytest.raises(BadData, match=rf"{out}: {words} written as \{form.suffix}, .*: rename it"):
            form.check_out(tmp_path / out)
    with pytest.raises(BadData, match="is a folder"):
        form.check_out(tmp_path)


def test_masks_are_no_symbols(tmp_path):
    form, x = read(put(tmp_path, "a.txt", "abc" * 99), Reading(length=3))
    x[2, 1] = form.process().mask
    with pytest.raises(BadData, match="some symbols are still masked"):
        form.write(x, tmp_path / "out.txt")
    assert not (tmp_path / "out.txt").exists()


FILES = {
    "people.csv": ("a,b\n" + "1,2\n" * 9, "a table"),
    "a.txt": ("abc" * 99, "text"),
    "a.fa": (">x\n" + "ACGT" * 99, "a FASTA file"),
    "m.csv": ("smiles\nCCO\nCCC\n", "a file of molecules"),
    "a-ubyte": (b"\x00\x00\x08\x01\x00\x00\x00\x03\x01\x02\x03", "an array"),
}
ODD_OPTIONS = {
    "people.csv": ["--length", "--text", "--tokenizer", "--padded", "--no-padded", "--categories", "--noise"],
    "a.txt": ["--encoding", "--categories", "--columns"],
    "a.fa": ["--text", "--encoding", "--categories", "--columns"],
    "m.csv": ["--text", "--tokenizer", "--no-padded", "--encoding", "--categories"],
    "a-ubyte": ["--length", "--text", "--tokenizer", "--padded", "--no-padded", "--encoding", "--columns"],
}


@pytest.mark.parametrize("name", FILES)
def test_options_that_say_nothing_of_a_file(tmp_path, name):
    content, what = FILES[name]
    path = put(tmp_path, name, content)
    values = {
        "--length": {"length": 3},
        "--text": {"text": "bytes"},
        "--tokenizer": {"tokenizer": path},
        "--padded": {"padded": True},
        "--no-padded": {"padded": False},
        "--encoding": {"encoding": "latin-1"},
        "--categories": {"categories": True},
        "--noise": {"noise": "masking"},
        "--columns": {"columns": path},
    }
    for option in ODD_OPTIONS[name]:
        with pytest.raises(BadData, match=rf"^{option} is for [\w ]+; .*{name} is {what}: leave it out$"):
            read(path, Reading(**values[option]))
    read(path, Reading(encoding="UTF-8"))


@pytest.mark.parametrize("length", [0, -3])
@pytest.mark.parametrize("name, content", [("a.txt", "abc" * 99), ("a.csv", "smiles\nCCO\n")])
def test_a_length_below_one(tmp_path, length, name, content):
    with pytest.raises(BadData, match=f"--length {length}: a sequence has at least one symbol"):
        read(put(tmp_path, name, content), Reading(length=length))


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


def test_bytes_are_written_raw(tmp_path):
    """A window may cut a character; together the windows are the file."""
    text = ("naïve café über " * 20).encode()
    form, x = Sequences.fit(put(tmp_path, "a.txt", text), "text", length=7, symbols="bytes")
    form.write(x, tmp_path / "out.txt")
    out = (tmp_path / "out.txt").read_bytes()
    assert out == b"\n\n".join(text[i : i + 7] for i in range(0, len(text) - 6, 7)) + b"\n"
    lines = ["Ångström", "über", "ça"] * 4  # \x85, in Å, is no end of a line
    form, x = Sequences.fit(put(tmp_path, "b.txt", "\n".join(lines)), "text", symbols="bytes", padded=True)
    assert form.texts(x) == lines
    form.write(x, tmp_path / "out.txt")
    assert (tmp_path / "out.txt").read_text() == "\n".join(lines) + "\n"


def filled(form, source, out, drawn: str | list[str], mark=None) -> str:
    """The file with gaps, these symbols in their places."""
    x, fixed = form.gaps(source, mark)
    x[~fixed] = torch.tensor([form.alphabet.index(symbol) for symbol in drawn])
    form.write_filled(x, source, out, mark)
    return out.read_bytes().decode()


def test_a_packed_text_comes_back_with_its_gaps_filled(tmp_path):
    text = "the cat sat on the mat dog ran f" * 2
    out = tmp_path / "out.txt"
    form, _ = Sequences.fit(put(tmp_path, "a.txt", text), "text", length=16)
    gaps = text[:14] + "__" + text[16:20] + "_" + text[21:]
    for end in ("", "\n", "\r\n"):  # of the file; it is no symbol of the model
        whole = filled(form, put(tmp_path, "g.txt", gaps + end), out, "fom")
        assert whole == text[:14] + "fo" + text[16:20] + "m" + text[21:] + end
    raw = "naïve café über ".encode() * 7
    form, _ = Sequences.fit(put(tmp_path, "b.txt", raw), "text", length=19, symbols="bytes")
    gaps = raw[:2] + b"_" + raw[3:18] + b"_" + raw[19:38]
    whole = filled(form, put(tmp_path, "g.txt", gaps), out, [chr(raw[2]), chr(raw[18])])
    assert whole == raw[:38].decode()
    with pytest.raises(BadData, match="more than one byte"):
        form.gaps(tmp_path / "g.txt", "█")


def test_fasta_names_and_lines_stay(tmp_path):
    form, _ = Sequences.fit(put(tmp_path, "a.fa", "".join(f">s{i}\n{'ACGT' * 5}\n" for i in range(20))), "fasta")
    source = put(tmp_path, "g.fa", ">first n_me\nACGTac\ngtNN\n\n; second\nnACG\n")
    assert filled(form, source, tmp_path / "o.fa", "TTA", "n") == ">first n_me\nACGTac\ngtTT\n\n; second\nAACG\n"
    assert torch.equal(form.gaps(source, "n")[1], form.gaps(source, "N")[1])
    with pytest.raises(BadData, match="none of the model's symbols"):
        form.gaps(source, "a")


def test_the_column_beside_smiles_stays(tmp_path):
    molecules = ["CCO", "BrCCl", "c1ccccc1", "CC(=O)O"] * 5
    content = "\ufeffname,SMILES\n" + "".join(f"m{i},{m}\n" for i, m in enumerate(molecules))
    form, x = read(put(tmp_path, "m.csv", content))
    assert isinstance(form, Sequences) and form.form == "smiles" and form.texts(x) == molecules
    source = put(tmp_path, "g.csv", 'SMILES,name\nC_O,a_b\n_CC_,"x, y"\n')
    whole = filled(form, source, tmp_path / "out.csv", ["C", "Br", "Cl"])
    assert whole == 'SMILES,name\nCCO,a_b\nBrCCCl,"x, y"\n'


def test_where_a_padded_sequence_cannot_end(tmp_path):
    lines = ["the cat", "the dog sat", "a mat"] * 4
    form, _ = Sequences.fit(put(tmp_path, "a.txt", "\n".join(lines)), "text", padded=True)
    source = put(tmp_path, "g.txt", "the c_t\n__e d__\n\na mat\n")
    x, fixed = form.gaps(source)
    assert (~fixed).nonzero().tolist() == [[0, 5], [1, 0], [1, 1], [1, 5], [1, 6]]
    whole = filled(form, source, tmp_path / "out.txt", ["o", "t", "h", END, "g"])
    assert whole == "the cot\nthe d\n\na mat\n"  # nothing comes after an END
    with pytest.raises(BadData, match="sequence 1 has 13 symbols, the model's have up to 11"):
        form.gaps(put(tmp_path, "g.txt", "the dog sat _"))
    with pytest.raises(BadData, match="no space"):
        form.gaps(source, "\t")


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
