import torch

import unnoise as un


def test_exact_bound_of_a_table_is_its_negative_log_likelihood():
    process = un.Masking(3, 2)
    probs = torch.rand(9, dtype=torch.float64)
    oracle = un.oracles.table(process, probs / probs.sum())
    x = process.space.states()
    bound = un.bound(oracle, x, exact=True)
    torch.testing.assert_close(bound.total, -oracle.log_prob(x), atol=1e-10, rtol=0)
