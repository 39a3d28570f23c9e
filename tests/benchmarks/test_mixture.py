"""The mixture benchmark measures both formulas on the same numbers, forward and backward."""

import torch


def test_both_sides_agree_and_compute_gradients(bench, monkeypatch):
    mixture = bench("mixture")
    monkeypatch.setattr(mixture, "CALLS", 1)
    nonzero = []
    real = torch.autograd.grad

    def grad(*args):
        gradients = real(*args)
        nonzero.append([gradient.abs().sum() > 0 for gradient in gradients])
        return gradients

    monkeypatch.setattr(torch.autograd, "grad", grad)
    for members in (1, 3):
        row = mixture.compare(mixture.Shape(P=members, N=8, K=4, V=5), rounds=2)
        assert row.rival == "operations of torch"
        assert row.low > 0
    assert len(nonzero) == 2 * 2 * (1 + 1 + 2)  # shapes, sides; agreement, warm-up, rounds
    assert all(all(call) for call in nonzero)
