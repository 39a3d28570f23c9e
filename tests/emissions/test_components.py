"""K distributions over words, without anything that chooses among them."""

import copy
from unittest.mock import patch

import pytest
import torch
from torch import nn

from lmzoo.emissions import components
from lmzoo.emissions.components import Components, FreeComponents
from lmzoo.emissions.mixture import MixtureEmission
from lmzoo.functional.log_normaliser import log_normalisers
from lmzoo.functional.normalise import Norm
from tests.laws.ask import same
from tests.tiny import CLOSE, FINE

K, V, E = 4, 7, 3
KINDS: dict[str, nn.Module] = {
    "plain": Components(K, E, Norm.NONE, scaled=False),
    "scaled": Components(K, E, Norm.RMS, scaled=True),
    "free": FreeComponents(K, V),
}


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_gathered_from_rows_that_sum_to_one(kind: str) -> None:
    words, table = KINDS[kind], torch.randn(V, E)
    targets = torch.randint(V, (2, 5))
    rows = words.word_table(table).detach()
    same(rows.exp().sum(1), torch.ones(K), CLOSE, "P(v | z)")
    same(words.word_scores(targets, table).detach(), rows.T[targets], CLOSE, "scores")


@pytest.mark.parametrize("kind", ["plain", "scaled"])
def test_scores_by_word_and_by_target_are_the_same(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, targets = copy.deepcopy(KINDS[kind]).double(), torch.randint(V, (2, 5))
    table = torch.randn(V, E, dtype=torch.float64, requires_grad=True)
    found = {}
    for plain in (components.PLAIN, 0):
        monkeypatch.setattr(components, "PLAIN", plain)
        with patch.object(components, "log_normalisers", wraps=log_normalisers) as asked:
            scores = words.word_scores(targets, table)
        assert asked.called == (plain == 0)
        slopes = torch.autograd.grad(scores.square().sum(), (table, *words.parameters()))
        found[plain] = (scores.detach(), *slopes)
    for one, other in zip(*found.values(), strict=True):
        same(one, other, FINE, kind)


def test_a_scale_multiplies_its_own_component() -> None:
    words, table = Components(K, E, Norm.NONE, scaled=True), torch.randn(V, E)
    assert words.log_scale is not None
    expected = torch.log_softmax(words.log_scale.exp() * words.means @ table.T, dim=1)
    same(words.word_table(table).detach(), expected.detach(), CLOSE, "exp(g) k")


def test_the_mixture_emission_is_a_gate_over_its_components() -> None:
    head = MixtureEmission(MixtureEmission.Config(components=K), E, Norm.RMS)
    y, table = torch.randn(2, 5, E), torch.randn(V, E)
    expected = torch.softmax(head.gate(y), dim=-1) @ head.word_table(table).exp()
    same(head.dense(y, table).exp().detach(), expected.detach(), CLOSE, "P(v | y)")
    assert list(head.state_dict()) == ["means", "log_scale", "gate.weight", "gate.bias"]
