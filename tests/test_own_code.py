"""Code of the user's own, through the `unnoise` command: what it brings is saved and named; its mistakes have a place."""

import json
from pathlib import Path

import pytest

from unnoise.cli import main
from unnoise.data import FORMATS
from unnoise.extensions import place_of
from unnoise.networks import REGISTRY
from unnoise.predictions.registry import KINDS

FORMAT = """
import json
import torch
import unnoise as un
from unnoise.data import Format, Line, register_format
from unnoise.data.files import read_text, write_bytes


class Base(Format):
    suffix = ".{kind}"

    @classmethod
    def read(cls, path, how):
        return cls(), cls().encode(path)

    def encode(self, path):
        rows = [json.loads(line) for line in read_text(path).splitlines()]
        return {{"xy": torch.tensor([row["xy"] for row in rows]), "c": torch.tensor([[row["c"]] for row in rows])}}

    def write(self, x, path):
        rows = [dict(xy=xy, c=c[0]) for xy, c in zip(x["xy"].tolist(), x["c"].tolist())]
        write_bytes(path, "".join(json.dumps(row) + "\\n" for row in rows).encode())

    def process(self):
        return un.Product(xy=un.Gaussian((2,)), c=un.Masking(3, (1,)))

    def lines(self):
        return [Line("xy", "numbers", "two", "Gaussian"), Line("c", "category", "three", "Masking")]

    def to_json(self):
        return {{}}

    @classmethod
    def from_json(cls, data):
        return cls()


class Own(Base):
    kind, suffix, suffixes = "{kind}", ".{kind}", (".{kind}",)

{more}

register_format(Own)
"""
OWN_KIND = '''
    def process(self):
        return un.Product(xy=Shifted((2,)), c=un.Masking(3, (1,)))


@un.predictions.register_kind
class Halved(un.predictions.ContinuousPrediction):
    """x_0/2."""

    @staticmethod
    def target_coefficients(schedule, t):
        half = torch.full_like(schedule.alpha(t), 0.5)
        return half, 0 * half


class Shifted(un.Gaussian):
    pass


un.predictions.default_kind.register(Shifted)(lambda process: Halved)
'''
NETWORK = """
    def network_hints(self):
        return {}


from dataclasses import dataclass
from torch import nn
from unnoise.networks import register


@dataclass(kw_only=True)
class Options:
    width: int = 4


@register(Options, lambda process: {})
class Stumbling(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config, self.weight = config, nn.Parameter(torch.zeros(()))

    def forward(self, x, t):
        return x["nothing"]
"""


@pytest.fixture
def unnoise(tmp_path, monkeypatch, capsys):
    """The command in a folder with a file of points; `own(kind, code)` writes a module there that registers a format."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    registries = [(registry, dict(registry)) for registry in (FORMATS, REGISTRY, KINDS)]

    def run(*arguments, status=0):
        with pytest.raises(SystemExit) as ended:
            main([*map(str, arguments)])
        printed = capsys.readouterr()
        assert ended.value.code == status, printed.err
        if status:
            assert len(printed.err.strip().splitlines()) == 1
        return printed.out if status == 0 else printed.err

    def own(kind, more=""):
        Path(f"own_{kind}.py").write_text(FORMAT.format(kind=kind, more=more or "    pass"))
        rows = [{"xy": [i % 5 / 2, -i % 3 / 2], "c": i % 3} for i in range(60)]
        Path(f"a.{kind}").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return "train", f"a.{kind}", "--load", f"own_{kind}", "--out", f"run_{kind}", "--steps", 3

    run.own = own
    yield run
    for registry, kept in registries:
        registry.clear()
        registry.update(kept)


def line_of(kind, code):
    return 1 + next(i for i, line in enumerate(Path(f"own_{kind}.py").read_text().splitlines()) if code in line)


def test_a_kind_of_ones_own_is_trained_saved_and_sampled(unnoise):
    told = unnoise(*unnoise.own("dotsa", OWN_KIND))
    assert "next: unnoise sample run_dotsa --load own_dotsa -n 100" in told
    assert json.loads(Path("run_dotsa/config.json").read_text())["predicts"] == {"xy": "Halved", "c": "Posterior"}
    unnoise("sample", "run_dotsa", "--load", "own_dotsa", "-n", 5, "--out", "new.dotsa")
    assert len(Path("new.dotsa").read_text().splitlines()) == 5
    KINDS.pop("Halved")  # as where nothing was loaded
    told = unnoise("sample", "run_dotsa", "-n", 5, status=2)
    assert "no prediction type 'Halved': choose from" in told and "--load MODULE" in told


def test_messages_say_what_to_write(unnoise):
    command = unnoise.own("dotsb")
    told = unnoise("train", "a.dotsb", status=2)
    assert "nothing is known of files with the suffix '.dotsb'" in told and "--load MODULE" in told
    unnoise(*command)
    sample = ("sample", "run_dotsb", "--load", "own_dotsb")
    told = unnoise(*sample, "--sampler", "DDIM", status=2)
    assert "--sampler DDIM: data of several parts (xy, c) is drawn by a method for each, together; leave it out" in told
    assert "or write given(assignments) of Own" in unnoise(*sample, "--given", "c=1", status=2)
    told = unnoise("infill", "run_dotsb", "a.dotsb", "--load", "own_dotsb", "--out", "b.dotsb", status=2)
    assert "cannot be filled yet: write gaps(path, mark) of Own" in told
    masked = unnoise.own(
        "dotsc", "    def process(self):\n        return un.Product(xy=un.Thinning((2,)), c=un.Masking(3, (1,)))"
    )
    told = unnoise(*masked, "--schedule", "cosine", status=2)
    assert "no numbers under Gaussian noise" in told and "Thinning and Masking: leave it out" in told and "register" in told


MISTAKES = {
    "a type": ("    def encode(self, path):\n        return {} * 0.5", "{} * 0.5", "TypeError: unsupported operand type(s)"),
    "an attribute": ("    def lines(self):\n        return self.parts", "self.parts", "AttributeError: 'Own' object has no"),
    "a key": ("    def process(self):\n        return {}['c']", "{}['c']", "KeyError: 'c'"),
    "a value": ("    def process(self):\n        return un.Masking(0, (1,))", "Masking(0", "0 categories"),
    "a name": ("    x = undefined", "undefined", "NameError: name 'undefined'"),
    "a sentence": ("    def", "    def", "SyntaxError: "),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_has_a_place(unnoise, name):
    code, where, words = MISTAKES[name]
    kind = "x" + name.replace(" ", "")
    command = unnoise.own(kind, code)
    told = unnoise(*command, status=2)
    at = Path(f"own_{kind}.py").read_text().splitlines().index(code.splitlines()[-1]) + 1
    assert told.startswith(f"unnoise: own_{kind}.py:{at}: ") and words in told
    assert not Path(f"run_{kind}").exists()


def test_what_is_returned_wrong_is_named(unnoise):
    told = unnoise(*unnoise.own("half", "    @classmethod\n    def read(cls, path, how):\n        return cls()"), status=2)
    assert "a.half: Own.read(path, how) returned a Own: return a pair, the format and the states" in told
    told = unnoise(*unnoise.own("sets", "    def to_json(self):\n        return {'a': {1, 2}}"), status=2)
    assert "Own.to_json() is not plain data (Object of type set is not JSON serializable)" in told


def test_a_run_that_got_nowhere_leaves_no_folder(unnoise):
    command = (*unnoise.own("dotsd", NETWORK), "--network", "Stumbling", "--json")
    for _ in range(2):
        told = unnoise(*command, status=2)
        assert told.startswith(f"unnoise: own_dotsd.py:{line_of('dotsd', 'nothing')}: KeyError: 'nothing'")
        assert not Path("run_dotsd").exists()


def test_errors_of_the_library_have_no_such_place():
    """What arose in code that nobody here wrote: the frames of this test taken off."""
    with pytest.raises(ValueError) as caught:
        json.loads("{")
    assert Path(place_of(caught.value).rpartition(":")[0]).name == "test_own_code.py"
    assert place_of(caught.value.with_traceback(caught.tb.tb_next)) is None
