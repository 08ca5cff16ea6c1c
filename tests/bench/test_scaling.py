"""The sweeps: what they count, and their picture."""

import pytest
import torch

from unnoise.bench import BenchSetting
from unnoise.bench.machine import Origin
from unnoise.bench.scaling import DRAWING, SPANS, TRAINING, GrowthReport, Point, Sweep, scaling
from unnoise.bench.scaling_picture import canvas, save

TINY = BenchSetting.of("cpu", "tiny")


@pytest.mark.parametrize("steps", [8, 4, 2])
def test_the_head_is_asked_for_each_token_once(steps):
    """So a step touches batch x length / steps rows of the vocabulary on average, as the third sweep says."""
    span = SPANS["tiny"]
    point = Point(TINY, span, span.batch, span.length, steps)
    rows = []
    point.denoiser.network.out.register_forward_hook(lambda module, given, out: rows.append(out.numel() // span.size))
    point.drawing()
    assert sum(rows) == span.batch * span.length and len(rows) <= steps


def test_sweeps_span_what_they_say():
    batch, length, touched = (measure() for measure in scaling(TINY))
    assert [(sweep.against, sweep.what) for sweep in batch + length + touched] == [
        ("batch", DRAWING),
        ("batch", TRAINING),
        ("length", DRAWING),
        ("length", TRAINING),
        ("vocabulary rows touched", DRAWING),
    ]
    assert batch[0].numbers == [1, 2, 4] and length[1].numbers == [4, 8, 16] and touched[0].numbers == [2, 4, 8]
    assert all(time > 0 for sweep in batch + length + touched for time in sweep.times)


def test_each_sweep_changes_one_number(monkeypatch):
    """Where batch and length are told as times, each sweep shows its own."""
    told = {DRAWING: lambda point: float(point.batch), TRAINING: lambda point: float(point.x0.shape[1])}
    monkeypatch.setattr(Point, "timed", lambda point: {what: of(point) for what, of in told.items()})
    batch, length, touched = (measure() for measure in scaling(TINY))
    assert [sweep.times for sweep in batch] == [[1, 2, 4], [8, 8, 8]]
    assert [sweep.times for sweep in length] == [[2, 2, 2], [4, 8, 16]]
    assert [sweep.times for sweep in touched] == [[2, 2, 2]]


@pytest.mark.parametrize("size", ["small", "large"])
def test_measured_sweeps_cover_two_orders_of_magnitude(size):
    span = SPANS[size]
    touched = [span.batch * span.length / steps for steps in span.runs]
    for numbers in (span.batches, span.lengths, touched):
        assert list(numbers) == sorted(numbers) and numbers[-1] / numbers[0] >= 100


def test_a_training_step_leaves_no_gradient():
    point = Point(TINY, SPANS["tiny"], 2, 8, 2)
    point.training()
    assert all(p.grad is None for p in point.denoiser.parameters())


def test_report_and_picture(tmp_path):
    sweep = Sweep("batch", "a step", [1, 10, 100], [1e-3 * (1 + 0.1 * n) for n in (1, 10, 100)])
    origin = Origin(date="d", machine="m", size="tiny", versions={}, command="c", seconds=1.0)
    report = GrowthReport([sweep], origin)
    assert sweep.cells() == ["batch", "a step", "1", "100", "1.1 ms to 11 ms", "1.00", "1.0000", "1 ms"]
    assert report.json()["sweeps"][0]["exponent"] == pytest.approx(1) and "| batch | a step |" in report.markdown()
    save([sweep], canvas(1), "title", tmp_path / "grown.png")
    assert (tmp_path / "grown.png").read_bytes()[1:4] == b"PNG"
    assert report.text().startswith("against")


def test_tokens_are_seen_by_themselves():
    network = Point(TINY, SPANS["tiny"], 2, 8, 2).denoiser.network
    x = torch.randint(11, (1, 8))
    apart = torch.cat([network(x[:, i : i + 1], torch.zeros(1)) for i in range(8)], 1)
    torch.testing.assert_close(network(x, torch.zeros(1)), apart)
