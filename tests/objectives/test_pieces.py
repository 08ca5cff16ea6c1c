"""A bound in pieces is the bound of the whole: rows keep their noise, and their stratum of time."""

import pytest
import torch

import unnoise as un
from unnoise.objectives.pieces import in_pieces

NUMBERS = un.oracles.normal(un.Gaussian((2,)), torch.tensor([0.7, -0.3]), torch.diag(torch.tensor([0.5, 0.3])))
LETTERS = un.oracles.table(un.Masking(3, (2,)), torch.arange(1.0, 10.0) / 45)
UNIFORM = un.oracles.table(un.Uniform(3, (2,)), torch.arange(1.0, 10.0) / 45)
ROWS = torch.tensor([[0, 1], [2, 2], [1, 0], [2, 1], [0, 0], [1, 1], [2, 0], [0, 2], [1, 2]])
CASES = {"numbers": (NUMBERS, ROWS.double() - 1), "letters": (LETTERS, ROWS), "uniform": (UNIFORM, ROWS)}


class Mixed(un.AnyDenoiser):
    """Numbers and letters, each by the exact denoiser of its own."""

    def __init__(self):
        super().__init__()
        self.x, self.c = NUMBERS, LETTERS
        self.process = un.Product(x=NUMBERS.process, c=LETTERS.process)
        self.kinds = {"x": NUMBERS.kinds, "c": LETTERS.kinds}

    def forward(self, x_t, t, /):
        clock = t if isinstance(t, dict) else {"x": t, "c": t}
        parts = {"x": self.x(x_t["x"], clock["x"]), "c": self.c(x_t["c"], clock["c"])}
        return un.predictions.ProductPrediction(parts, self.process, x_t, t)


class Narrow(un.AnyDenoiser):
    def __init__(self, inner, most):
        super().__init__()
        self.inner, self.process, self.most = inner, inner.process, most

    def forward(self, x, t, /, **condition):
        if un.tree.batch_size(x) > self.most:
            raise MemoryError
        return self.inner(x, t, **condition)


@pytest.mark.parametrize("name", [*CASES, "mixed"])
@pytest.mark.parametrize("size", [1, 4, 9])
def test_pieces_have_the_terms_of_the_whole(name, size):
    denoiser, x0 = CASES[name] if name in CASES else (Mixed(), {"x": ROWS.double() - 1, "c": ROWS})
    objective, noise = un.Objective(denoiser), un.NoiseSource(3, torch.arange(9) * 5)
    whole, parts = objective(x0, noise), in_pieces(objective, x0, noise, size=size)
    assert parts.is_bound
    for term in ("prior", "diffusion", "reconstruction"):
        torch.testing.assert_close(parts[term], whole[term], rtol=1e-12, atol=1e-12)


def test_rows_by_themselves_would_have_other_times():
    """What pieces keep: without it a row has the stratum of its place in the piece."""
    objective, noise = un.Objective(NUMBERS), un.NoiseSource(3, 9)
    x0 = ROWS.double() - 1
    alone = objective(x0[4:], noise.of(torch.arange(4, 9)))
    assert not torch.allclose(alone.diffusion, objective(x0, noise).diffusion[4:])


@pytest.mark.parametrize("name", CASES)
def test_a_bound_without_memory_for_all_rows_goes_on_with_half_of_them(name):
    denoiser, x0 = CASES[name]
    with torch.no_grad():
        whole = un.bound(denoiser, x0, seed=1)
        with pytest.warns(UserWarning, match="memory ran out with 9 rows at a time: going on with 4") as told:
            parts = un.bound(Narrow(denoiser, 4), x0, seed=1, cutoff=denoiser.cutoff)
    assert len(told) == 1
    torch.testing.assert_close(parts.total, whole.total, rtol=1e-12, atol=1e-12)
    with pytest.raises(MemoryError):
        un.bound(Narrow(denoiser, 4), x0, seed=1)  # with gradients, whose graph would hold every half


def test_conditions_are_cut_with_their_rows():
    class Shifted(un.AnyDenoiser):
        process = NUMBERS.process

        def forward(self, x, t, /, label):
            return un.Clean(label.unsqueeze(1).expand_as(x), self.process, x, t)

    objective, noise, told = un.Objective(Shifted()), un.NoiseSource(3, 9), {"label": torch.arange(9.0).double()}
    x0 = ROWS.double()
    whole, parts = objective(x0, noise, told), in_pieces(objective, x0, noise, told, size=2)
    torch.testing.assert_close(parts.total, whole.total, rtol=1e-12, atol=1e-12)
