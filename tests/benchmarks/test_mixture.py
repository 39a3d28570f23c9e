"""Both formulas are measured on the same numbers, forward and backward."""

import torch


def test_both_sides_give_the_same_and_reach_the_gradients(bench, monkeypatch):
    mixture = bench("mixture")
    monkeypatch.setattr(mixture, "CALLS", 1)
    seen = []
    real = torch.autograd.grad

    def grad(*given):
        found = real(*given)
        seen.append([one.abs().sum() > 0 for one in found])
        return found

    monkeypatch.setattr(torch.autograd, "grad", grad)
    for members in (1, 3):
        row = mixture.compare(mixture.Shape(P=members, N=8, K=4, V=5), rounds=2)
        assert row.rival == "operations of torch"
        assert row.low > 0
    assert len(seen) == 2 * 2 * (1 + 1 + 2)  # shapes, sides; agreement, warming, rounds
    assert all(all(both) for both in seen)
