"""Every row through its real code, in the tiny size."""

import math

import pytest
import torch

import unnoise.bench.tables as tables
from unnoise.bench import BenchSetting, Timing, chosen, throughput, training_steps
from unnoise.bench.adult_like import AdultLike
from unnoise.bench.bodies import PlainTransformer
from unnoise.bench.digits import ordinal_digits
from unnoise.denoiser import Denoiser
from unnoise.training.run import Run

TINY = BenchSetting.of("cpu", "tiny")
LINES = {
    "masking": 2,
    "numbers": 1,
    "multistep": 3,
    "masked-training": 1,
    "uniform-training": 1,
    "bound": 2,
    "small-steps": 3,
    "digits": 1,
}


@pytest.mark.parametrize("name", list(LINES))
def test_a_row(name):
    figures = chosen([name])[0].figures(TINY)
    assert [figure.error for figure in figures] == [None] * LINES[name]
    for figure in figures:
        assert figure.row == name and figure.aim is None and figure.floor_is
        assert figure.ours.seconds > 0 and figure.floor.seconds > 0 and math.isfinite(figure.ratio)


def test_masking_is_told_per_call_of_the_network(monkeypatch):
    """Of runs that take 8 s each: 4 calls of the body, 4 of a short run, and about 80 of one token at a time of 2 x 80."""
    from unnoise.bench import masking

    monkeypatch.setattr(masking, "taken", lambda calls, *_: {name: Timing(8.0) for name in calls if calls[name]() or True})
    default, short = chosen(["masking"])[0].figures(TINY)
    assert default.floor == short.floor == short.ours == Timing(2.0)
    assert 8 / 81 <= default.ours.seconds <= 8 / 60


def test_the_reference_of_masked_training_is_there():
    (figure,) = chosen(["masked-training"])[0].figures(TINY)
    assert list(figure.peers)[-1] == "all log-probabilities"


def test_training_rows(monkeypatch):
    monkeypatch.setattr(throughput, "import_seconds", lambda: 100.0)
    table, start, text, image = chosen(["training"])[0].figures(TINY)
    for figure, name in ((table, "table"), (text, "text"), (image, "image")):
        assert figure.error is None and figure.what.startswith(f"{name}, preset tiny, batch 16") and figure.ratio > 0
    assert start.parts["import"] == 100.0 and start.floor is None
    assert start.ours.seconds == pytest.approx(sum(start.parts.values()))


def test_the_row_of_a_table_is_the_whole_command(monkeypatch):
    monkeypatch.setattr(tables, "import_seconds", lambda: 0.01)
    (figure,) = chosen(["table"])[0].figures(TINY)
    assert figure.error is None and figure.what == "unnoise sample -n 8, 2 labels and 1 numbers"
    assert figure.floor_is == "66 calls of the network"  # 64 steps, and one for each label
    assert figure.ours.seconds == pytest.approx(sum(figure.parts.values()))
    assert 0 < figure.parts["drawing"] < figure.ours.seconds


def test_a_command_that_fails_is_told_with_what_it_said():
    from unnoise.bench.fresh import seconds_of

    with pytest.raises(RuntimeError, match="ended with status 3: out of luck"):
        seconds_of("-c", "import sys; print('out of luck', file=sys.stderr); sys.exit(3)")


def test_the_floor_of_a_table_is_the_network_on_as_many_rows(monkeypatch):
    """Twice the rows of a batch cost twice its time."""
    form, seen = AdultLike(labels=(3, 2), numbers=("age",)), []

    class Seeing(torch.nn.Module):
        def forward(self, x, t):
            seen.append((len(t), x["categories"].amax(0).tolist()))
            return x

    monkeypatch.setattr(tables, "BATCH", 50)
    monkeypatch.setattr(
        tables, "taken", lambda calls, *_, **__: {name: Timing(call() and 2.0) for name, call in calls.items()}
    )
    found = tables.floor(Denoiser(Seeing(), form.process()), form, 125, TINY)
    assert found == Timing(5.0) and seen == [(50, [2, 1])]


def test_the_table_of_adults_shape_is_what_its_process_describes(tmp_path):
    form = AdultLike()
    process = form.process()
    assert process.space.dimension == 15 and AdultLike.from_json(form.to_json()) == form
    x = process.space.check(form.drawn(50), "x")
    form.write(x, tmp_path / "rows.csv")
    lines = (tmp_path / "rows.csv").read_text().splitlines()
    assert len(lines) == 50 and all(line.count(",") == 14 for line in lines)
    assert [int(cell) for cell in lines[0].split(",")[:11]] == x["categories"][0].tolist()


def test_an_untrained_run_can_be_opened(tmp_path):
    form = AdultLike(labels=(3, 2), numbers=("age",))
    run = tables.untrained(form, 100, TINY, tmp_path / "run")
    denoiser = Run.open(run.folder, {form.kind: AdultLike}).denoiser()
    assert list(denoiser.process.leaves) == ["categories", "age"]


def test_the_bare_loop_makes_as_many_updates_as_it_says(monkeypatch):
    plan = throughput.Windows(3, 2, "tiny", 64)
    updates = []
    original = throughput.Optimiser.update
    monkeypatch.setattr(throughput.Optimiser, "update", lambda *a: (updates.append(1), original(*a)))
    form, x0 = throughput._text(32)
    config = throughput.recipe(form, 32, "tiny", "cpu", steps=plan.steps)
    run_network = throughput.Denoiser(throughput_network(form), form.process())
    before = [p.detach().clone() for p in run_network.parameters()]
    taken = throughput.bare_updates(run_network, x0, config.train, form.objective_options(), plan)
    assert len(taken) == 3 and len(updates) == plan.steps == 10 and min(taken) > 0
    assert any(not torch.equal(a, b) for a, b in zip(before, run_network.parameters(), strict=True))


def throughput_network(form):
    from unnoise.networks.presets import default_network

    return default_network(form.process(), "tiny", seed=0, **form.network_hints())


def test_the_body_of_a_step_is_the_body_alone():
    """Its gradient reaches the body and never the head, and is forgotten afterwards."""
    steps = training_steps.TextSteps(TINY, training_steps.Masking)
    reached = set()
    for name, parameter in steps.network.named_parameters():
        parameter.register_hook(lambda gradient, name=name: reached.add(name))
    steps.body()
    assert any(name.startswith("body") for name in reached) and not any(name.startswith("head") for name in reached)
    reached.clear()
    steps.ours()
    assert "head.weight" in reached
    assert all(parameter.grad is None for parameter in steps.network.parameters())


def test_the_loss_by_hand_is_the_masked_cross_entropy_over_t():
    """Of a network that answers uniformly every masked token costs log K / t."""
    steps = training_steps.TextSteps(TINY, training_steps.Masking)
    torch.nn.init.zeros_(steps.network.head.weight)
    torch.nn.init.zeros_(steps.network.head.bias)
    seen = []
    steps.network.register_forward_pre_hook(lambda module, given: seen.append(((given[0] == 101).sum(1) / given[1]).mean()))
    loss = steps.hand_loss()
    assert seen[0] > 0 and float(loss.detach()) == pytest.approx(float(seen[0]) * math.log(101), rel=1e-5)


def test_networks_are_as_said():
    network = PlainTransformer(101, 16, 32, 1).eval()
    x, t = torch.randint(102, (2, 16)), torch.rand(2)
    assert torch.equal(network(x, t), network.head(network.features(x, t))) and network(x, t).shape == (2, 16, 101)
    form, denoiser = ordinal_digits(8, 5, "tiny")
    assert form.noise == "ordinal" and denoiser.process.space.size == 5 and denoiser.process.space.shape == (8, 8)
