"""`benchmarks/steering.py`: its scores and controls, by hand and on laws that are known."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
pytest.importorskip("matplotlib")
pytest.importorskip("scipy")


@pytest.fixture(scope="module")
def case():
    """A module of the cases, by name."""
    sys.path.insert(0, str(BENCHMARKS))
    yield lambda name: importlib.import_module(f"steering_cases.{name}")
    sys.path.remove(str(BENCHMARKS))


def test_images_are_means_over_blocks(case, tmp_path):
    whole = np.zeros((1, 4, 4), dtype=np.uint8)
    whole[0, :2, :2] = [[255, 255], [255, 251]]  # a mean of 254
    whole[0, 2:, 2:] = 31
    np.save(tmp_path / "x.npy", whole)
    assert case("common").images(tmp_path / "x.npy", 2).tolist() == [[[254, 0], [0, 31]]]
    assert case("common").images(tmp_path / "x.npy", 2, levels=8).tolist() == [[[7, 0], [0, 0]]]
    with pytest.raises(SystemExit, match="--shrink 3"):
        case("common").images(tmp_path / "x.npy", 3)


# digits


def test_spread_is_within_labels(case):
    x = np.array([[[0.0]], [[2.0]], [[10.0]], [[14.0]]])
    assert case("digits").spread(x, np.array([0, 0, 1, 1])) == pytest.approx((2 + 8) / 2)


def test_reach_is_the_distance_to_a_neighbour(case):
    centres = torch.tensor([[0.0], [1.0], [3.0], [20.0]])  # the closest others are 1, 1, 2 and 17 away
    points = torch.tensor([[-0.9], [2.5], [4.9], [5.1], [36.0], [38.0], [2.1]])
    found = case("digits").within_reach(points, centres, nearest=1)
    assert found.tolist() == [True, True, True, True, True, False, True]
    assert case("digits").within_reach(points, centres[:3], nearest=1).tolist()[3:6] == [False] * 3


def test_reach_keeps_labels_apart(case):
    g = np.random.default_rng(0)
    x, labels = g.normal(size=(40, 1, 2)), np.repeat([0, 1], 20)
    x[20:] += 100
    assert case("digits").reach(x, labels, x, labels) == 1.0
    assert case("digits").reach(x, labels, x, 1 - labels) == 0.0


def test_as_many_of_each_label(case):
    assert case("digits").balanced(np.array([1, 0, 1, 0, 1, 0]), 2).tolist() == [1, 3, 0, 2]


# windows of DNA


def test_kmers_leave_the_motif_out(case):
    law = case("dna").kmers(["ACTATAATGG", "CTATAATTTT"], "TATAAT", 2)  # parts AC, GG; C, TTT
    expected = {"AC": 1, "GG": 1, "TT": 2}
    letters = "ACGT"
    for k, p in enumerate(law):
        assert p == expected.get(letters[k // 4] + letters[k % 4], 0) / 4


def test_letters_around_the_motif(case):
    law = case("dna").around(["ACTATAATGG", "TATAATCCCC"], "TATAAT", flank=2)
    assert law[0].tolist() == [1, 0, 0, 0] and law[1].tolist() == [0, 1, 0, 0]
    assert law[2].tolist() == [0, 0.5, 0.5, 0] and law[3].tolist() == [0, 0.5, 0.5, 0]


def test_total_variation(case):
    assert case("dna").apart(np.array([0.5, 0.5, 0.0]), np.array([0.0, 0.5, 0.5])) == pytest.approx(0.5)


def test_windows_are_cut_anywhere_around_a_motif(case):
    g = np.random.default_rng(1)
    genome = "".join("ACGT"[i] for i in g.integers(0, 4, 400_000))
    windows = case("dna").cut(genome, "TATAAT", 20, seed=0)
    assert len(windows) > 60 and all(len(w) == 20 and "TATAAT" in w for w in windows)
    places = case("dna").first_places(windows, "TATAAT")
    assert case("dna").uniform_places(places, 14)[1] > 1e-3  # right, but for once in a thousand seeds
    assert case("dna").uniform_places(places // 2, 14)[1] < 1e-3  # the first half alone
    assert case("dna").written_over(["A" * 9], "TATAAT", 0)[0].replace("TATAAT", "") == "AAA"


def test_what_a_pattern_writes_out(case):
    found = case("dna").written_out("ATTGACACCTATAATG", ".*TTGACA.{2}TATAAT.*")
    assert found == set(range(1, 7)) | set(range(9, 15))
    assert case("dna").written_out("AAAA", ".*TTGACA.*") == set()


# molecules


def test_the_law_of_a_reward_from_draws(case):
    values, p = np.array([0.0, 0.5, 1.0]), np.array([0.5, 0.3, 0.2])
    w = p * np.exp(3 * values)
    truth, log_z = float((w * values).sum() / w.sum()), float(np.log(w.sum()))
    drawn = np.repeat(values, (1000 * p).astype(int))  # exactly as often as p says
    mean, error, found, log_error = case("molecules").weighed_mean(drawn, 3.0)
    assert mean == pytest.approx(truth, abs=1e-12) and found == pytest.approx(log_z, abs=1e-12)
    g = np.random.default_rng(0)
    several = [case("molecules").weighed_mean(g.choice(values, 1000, p=p), 3.0) for _ in range(200)]
    assert np.std([one[0] for one in several]) == pytest.approx(error, rel=0.2)  # 4 standard errors of a spread
    assert np.std([one[2] for one in several]) == pytest.approx(log_error, rel=0.2)


def test_the_best_of_each_group(case):
    assert case("molecules").best_of(np.array([0.1, 0.9, 0.3, 0.8, 0.2, 0.7, 1.0]), 3).tolist() == [1, 3]


def test_one_of_each_group_by_its_weight(case):
    rewards = np.tile([0.0, 1.0, 0.5], 20_000)
    w = np.exp(2 * rewards[:3])
    error = np.sqrt(w / w.sum() * (1 - w / w.sum()) / 20_000)

    def far(strength):
        places = case("molecules").by_weight(rewards, 3, strength, 0)
        assert (places // 3 == np.arange(20_000)).all()
        return np.abs(np.bincount(places % 3) / 20_000 - w / w.sum()) / error

    assert (far(2.0) < 4.5).all()  # false alarms: 2e-5
    assert (far(0.0) > 4.5).all() and (far(1.8) > 4.5).any()


# fills


def test_ranks_are_uniform_where_truth_and_fills_have_one_law(case):
    from scipy.stats import kstest

    g = np.random.default_rng(0)
    centre = g.integers(0, 5, (4000, 1))
    whole = centre + g.integers(0, 3, (4000, 25))  # ties, and a centre for each image
    truth, fills = whole[:, 0].reshape(-1, 1, 1), whole[:, 1:].reshape(4000, 24, 1, 1)
    ranks = case("fills").ranks
    assert kstest(ranks(truth, fills), "uniform").pvalue > 1e-4  # its false-alarm rate
    narrow = np.where(fills - centre[..., None, None] == 2, centre[..., None, None], fills)
    assert kstest(ranks(truth, narrow), "uniform").pvalue < 1e-4
    assert len(ranks(np.ones((3, 2)), np.ones((3, 4, 2)))) == 0  # one level: nothing is said


def test_calibration_by_hand(case):
    shares = case("fills").label_shares(np.array([[3, 3, 3, 5], [5, 5, 3, 3]]))
    assert shares[0, 3] == 0.75 and shares[0, 5] == 0.25 and shares.sum() == 2
    found = case("fills").calibration(shares, np.array([3, 3]), (0.0, 0.1, 0.5, 1.0))
    assert [one["pairs"] for one in found] == [16, 1, 3]
    assert [one["share"] for one in found] == pytest.approx([0, 0.25, 7 / 12])
    assert [one["true"] for one in found] == pytest.approx([0, 0, 2 / 3])


def test_fills_by_the_nearest_images(case):
    known = np.arange(12.0).reshape(6, 2, 1)  # upper halves 0, 2, 4, 6, 8, 10
    found = case("fills").nearest_fills(np.array([[[4.4]]]), known, 2)
    assert sorted(found[0, :, 0, 0].tolist()) == [4.0, 6.0]


# rows


def test_rows_are_compared_in_sets_of_one_size(case):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("sklearn")
    g = np.random.default_rng(0)
    x = g.normal(size=600)
    real = pd.DataFrame({"a": x, "b": x + 0.1 * g.normal(size=600), "c": 1.0})
    fake = pd.DataFrame({"a": x[:300], "b": g.permutation(x)[:300], "c": 2.0})
    found = case("adult").compared(real, fake, ["a", "b"], 0)
    assert found["rows"] == 300 and found["trend"] < 0.6 and found["two_sample"] < 0.4
    alike = case("adult").compared(real[:300], real[300:], ["a", "b"], 0)
    assert alike["trend"] > 0.98 and alike["two_sample"] > 0.8
