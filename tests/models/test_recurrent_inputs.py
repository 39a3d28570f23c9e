"""Inputs normalised per vocabulary entry equal inputs normalised per position."""

import pytest
import torch

from lmzoo.functional.normalise import Norm, normalise_sequence
from lmzoo.kernels.scan.tokens import TokenInputs
from lmzoo.models.recurrent import recurrent_lm
from tests.laws.support import assert_close
from tests.tiny import FINE, tiny

FEW, MANY = torch.tensor([[1, 3]]), torch.tensor([[1, 2, 3, 0], [3, 3, 1, 2]])


@pytest.mark.parametrize("norm", Norm)
@pytest.mark.parametrize("tokens", [FEW, MANY], ids=["few", "many"])
def test_inputs_per_vocabulary_entry_equal_inputs_per_position(
    norm: Norm, tokens: torch.Tensor
) -> None:
    model = tiny("recurrent_lm", vocab=4, norm=norm.value).double()
    assert (tokens.numel() > model.task.vocab) == (tokens is MANY)
    weight = model.embedding.weight
    ours, plain = model._inputs(tokens), normalise_sequence(model.embedding(tokens), norm)
    assert isinstance(ours, TokenInputs) == (tokens is MANY and not norm.over_time)
    ours = ours.vectors() if isinstance(ours, TokenInputs) else ours
    assert_close(ours.detach(), plain.detach(), FINE, "inputs")
    upstream = torch.randn(plain.shape, dtype=torch.float64)
    first, second = (torch.autograd.grad(x, weight, upstream)[0] for x in (ours, plain))
    assert_close(first, second, FINE, "gradient")


def test_only_short_batches_are_normalised_per_position(monkeypatch: pytest.MonkeyPatch) -> None:
    model, calls = tiny("recurrent_lm", vocab=4, norm="rms"), []
    monkeypatch.setattr(
        recurrent_lm, "normalise_sequence", lambda x, norm: calls.append(x.shape) or x
    )
    model._inputs(MANY)
    assert not calls
    model._inputs(FEW)
    assert calls == [(1, 2, model.config.width)]


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("starts", [0, 3])
def test_scores_from_token_ids_equal_scores_from_vectors(
    starts: int, layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny("recurrent_lm", vocab=4, starts=starts, num_layers=layers).double()
    tokens, lengths = torch.cat([MANY, MANY]), torch.tensor([4, 3, 4, 2])
    scores = model.score_tokens(tokens, lengths)
    words = model._inputs(tokens[:, :-1])
    assert isinstance(words, TokenInputs)
    monkeypatch.setattr(model, "_inputs", lambda tokens: words.vectors())
    assert_close(scores, model.score_tokens(tokens, lengths), FINE, "scores")
