"""Classes chosen by the last W tokens together (DLM20, 21, 22, 24)."""

import pytest
import torch

from lmzoo import zoo
from lmzoo.errors import UserError
from lmzoo.functional.normalise import Norm, normalise_vectors
from tests.laws.support import assert_close, next_log_prob
from tests.models.limits import copied, put, row, same_model, sees
from tests.tiny import CLOSE, every_sequence

PLAIN = "lagged_aggregate_markov"
ROWS = [PLAIN, f"{PLAIN}_free", f"{PLAIN}_scaled", f"{PLAIN}_sphere"]


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("window", [1, 2, 3])
def test_exactly_the_lags_are_seen(name: str, window: int) -> None:
    assert sees(row(name, window=window)) == [back <= window for back in (1, 2, 3)]


def test_the_seed_has_four_lags() -> None:
    assert all(zoo.config(name).window == 4 for name in ROWS)


@pytest.mark.parametrize("pad", ["ones", "unit"])
def test_scores_are_the_equation(pad: str) -> None:
    model = row(PLAIN, window=3, pad=pad)
    tokens, _ = every_sequence(model.task)
    table = model.embedding.weight
    before = torch.full((len(tokens), 1, 4), 1.0 if pad == "ones" else 0.5)
    for t in range(1, 5):
        seen = [table[tokens[:, t - j]] if t >= j else before[:, 0] for j in (1, 2, 3)]
        terms = (
            lag(c) / 2 ** (j + 1) for j, (lag, c) in enumerate(zip(model.lags, seen, strict=True))
        )
        weights = torch.softmax(sum(terms), dim=1)
        expected = weights @ torch.softmax(model.words.means @ table.T, dim=1)
        assert_close(
            next_log_prob(model, tokens[:, :t]).exp(), expected.detach(), CLOSE, f"after {t}"
        )


def test_one_lag_twice_as_loud_is_the_aggregate_markov_model() -> None:
    lagged, plain = row(PLAIN, window=4), row("aggregate_markov")
    copied(lagged, plain, "embedding.weight", "words.means")
    for j, lag in enumerate(lagged.lags):
        own = 2.0 if j == 0 else 0.0
        put(lag, {"weight": own * plain.gate.weight, "bias": own * plain.gate.bias})
    same_model(lagged, plain)


def test_a_free_table_may_be_the_tied_one() -> None:
    free, tied = row(f"{PLAIN}_free"), row(PLAIN)
    copied(free, tied, *(name for name, _ in tied.named_parameters() if "words" not in name))
    put(free, {"words.logits": tied.words.means @ tied.embedding.weight.T})
    same_model(free, tied)


def test_scales_of_one_are_no_scales() -> None:
    scaled, plain = row(f"{PLAIN}_scaled"), row(PLAIN)
    copied(scaled, plain, *dict(plain.named_parameters()))
    put(scaled, {"words.log_scale": 0.0})
    same_model(scaled, plain)


def test_the_sphere_is_the_scaled_row_with_two_fields_set() -> None:
    assert zoo.config("DLM22", norm="none", pad="ones") == zoo.config("DLM24")


def test_the_sphere_changes_nothing_that_is_on_it() -> None:
    sphere, plain = row(f"{PLAIN}_sphere"), row(f"{PLAIN}_scaled", pad="unit")
    for name in ("embedding.weight", "words.means"):
        put(sphere, {name: normalise_vectors(sphere.get_parameter(name), Norm.RMS)})
    copied(plain, sphere, *dict(sphere.named_parameters()))
    same_model(sphere, plain)


def test_the_pad_is_not_on_the_sphere() -> None:
    """Its length is one, and only the tokens are scaled up to √E."""
    model = row(f"{PLAIN}_sphere", window=2)
    prefix = every_sequence(model.task)[0][:1, :1]
    x = normalise_vectors(model.embedding(prefix[:, 0]), Norm.RMS)
    logits = model.lags[0](x) / 2 + model.lags[1](torch.full((1, 4), 0.5)) / 4
    found = model.log_weights(prefix)[:, 0]
    assert_close(found.detach(), torch.log_softmax(logits, dim=1).detach(), CLOSE, "after <start>")


def test_the_published_norm_says_that_it_leaks() -> None:
    assert "time_std" in row(f"{PLAIN}_sphere", norm="time_std").leaks
    assert not row(f"{PLAIN}_sphere", norm="time_std_causal").leaks


def test_a_free_table_with_scales_is_refused() -> None:
    with pytest.raises(UserError, match="scaled=True with words=free"):
        zoo.config(f"{PLAIN}_free", scaled=True)
