"""K distributions over tokens, without a gate."""

import copy
from unittest.mock import patch

import pytest
import torch
from torch import nn

from lmzoo.emissions import mixture
from lmzoo.emissions.mixture import Components, FreeComponents
from lmzoo.functional.log_normaliser import log_normalisers
from lmzoo.functional.normalise import Norm
from tests.laws.support import assert_close
from tests.tiny import CLOSE, FINE

K, V, E = 4, 7, 3
KINDS: dict[str, nn.Module] = {
    "plain": Components(K, E, Norm.NONE, scaled=False),
    "scaled": Components(K, E, Norm.RMS, scaled=True),
    "free": FreeComponents(K, V),
}


@pytest.mark.parametrize("kind", KINDS)
def test_token_log_probs_are_entries_of_a_normalised_table(kind: str) -> None:
    components_, table = KINDS[kind], torch.randn(V, E)
    targets = torch.randint(V, (2, 5))
    rows = components_.log_prob_table(table).detach()
    assert_close(rows.exp().sum(1), torch.ones(K), CLOSE, "P(v | z)")
    log_probs = components_.token_log_probs(targets, table).detach()
    assert_close(log_probs, rows.T[targets], CLOSE, "log P(target | z)")


@pytest.mark.parametrize("kind", ["plain", "scaled"])
def test_scoring_the_vocabulary_equals_scoring_the_targets(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    components_ = copy.deepcopy(KINDS[kind]).double()
    targets = torch.randint(V, (2, 5))
    table = torch.randn(V, E, dtype=torch.float64, requires_grad=True)
    results = {}
    for limit in (mixture.NAIVE_LIMIT, 0):
        monkeypatch.setattr(mixture, "NAIVE_LIMIT", limit)
        with patch.object(mixture, "log_normalisers", wraps=log_normalisers) as normalise:
            scores = components_.token_log_probs(targets, table)
        assert normalise.called == (limit == 0)
        gradients = torch.autograd.grad(scores.square().sum(), (table, *components_.parameters()))
        results[limit] = (scores.detach(), *gradients)
    for by_vocabulary, by_target in zip(*results.values(), strict=True):
        assert_close(by_vocabulary, by_target, FINE, kind)
