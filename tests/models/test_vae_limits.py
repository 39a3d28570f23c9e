"""A VAE whose latent says nothing is the plain recurrent model, exactly."""

import pytest
import torch

from lmzoo.cells.base import CELLS
from lmzoo.contract import LanguageModel
from lmzoo.functional.normalise import Norm
from lmzoo.zoo import config
from tests.laws.batching import law_padding_is_ignored, law_scores_have_shape
from tests.laws.density import law_next_is_a_distribution
from tests.laws.learning import law_every_parameter_learns
from tests.models.limits import copied, put, row, same_model
from tests.tiny import batch, tiny

FORGETFUL = {"name": "mgu", "cuts": ["state_to_gate", "state_to_candidate", "carry"]}
"""Without memory the first state, and so z, changes nothing."""


def decoder_of(model: LanguageModel) -> list[str]:
    """The parameters that a plain recurrent model has too."""
    whole = dict(model.named_parameters())
    return [name for name in whole if name.startswith(("embedding", "cell", "emission"))]


def silent(model: LanguageModel) -> None:
    """KL = 0: q is N(0, β_0^{-2}) for every sentence, and so is p."""
    put(model, {"z.to_mean": 0.0, "z.prior_mean": 0.0})
    copied(model, model, "z.prior_log_beta:z.log_beta")


def test_a_decoder_that_ignores_z_without_kl_is_the_plain_model() -> None:
    vae, plain = row("gru_vae", cell=FORGETFUL), row("recurrent_lm", cell=FORGETFUL)
    copied(plain, vae, *decoder_of(vae))
    silent(vae)
    same_model(vae, plain)


@pytest.mark.parametrize(("name", "plain"), [("gru_vae", "gru"), ("rnn_vae", "rnn")])
def test_a_collapsed_latent_is_the_plain_model_from_one_state(name: str, plain: str) -> None:
    """z is the prior's mean up to 1e-9: the posterior collapse that the seed reports."""
    vae, recurrent = row(name), row("recurrent_lm", cell=plain, starts=1)
    copied(recurrent, vae, *decoder_of(vae))
    silent(vae)
    put(vae, {"z.log_beta": 20.0, "z.prior_log_beta": 20.0})
    put(recurrent, {"starts.vectors": 0.0})
    same_model(vae, recurrent)


def test_a_ternary_latent_that_is_always_zero_is_the_plain_model_from_zero() -> None:
    vae, plain = row("gru_ternary_vae"), row("recurrent_lm", cell="gru", starts=1)
    copied(plain, vae, *decoder_of(vae))
    put(plain, {"starts.vectors": 0.0})
    put(vae, {"z.prior_logits": torch.tensor([-60.0, 0.0, -60.0]).expand(4, 3)})
    vae.log_q = lambda h: vae.log_p().expand(len(h), -1, -1)  # type: ignore[method-assign]
    same_model(vae, plain)


@pytest.mark.parametrize("cell", [*CELLS, {"name": "mgu", "cuts": [0, 4, 5]}], ids=str)
def test_any_cell_may_read_and_tell(cell: object) -> None:
    """Among them the mutable unit of the seed's row `DLM51 0,4,5`."""
    model = tiny("gru_vae", cell=cell)
    law_scores_have_shape(model)
    law_padding_is_ignored(model)
    law_next_is_a_distribution(model)
    law_every_parameter_learns(model)


@torch.no_grad()
def test_the_encoder_reads_every_scored_token_and_nothing_else() -> None:
    model = row("gru_vae")
    tokens, _ = batch(model.task)
    lengths = torch.full((len(tokens),), model.task.length - 1)
    before = model.encode_sentence(tokens, lengths)
    for t in range(model.task.length):
        changed = tokens.clone()
        changed[:, t] = (tokens[:, t] + 1) % model.task.vocab
        moved = (model.encode_sentence(changed, lengths) - before).abs().amax(1)
        assert ((moved > 1e-4) == (1 <= t < model.task.length - 1)).all()


def test_a_normaliser_that_sees_the_future_is_named() -> None:
    assert "time_std" in tiny("gru_vae", norm=Norm.TIME_STD).leaks


def test_the_seed_s_numbers_name_the_rows() -> None:
    assert config("DLM50") == config("rnn_vae")
    assert config("DLM51").cell == CELLS.parse("gru")


@torch.no_grad()
@pytest.mark.parametrize("name", ["gru_vae", "gru_ternary_vae", "gru_autoencoder"])
@pytest.mark.parametrize("mutations", [[4], [4, 6]], ids=str)
def test_bernoulli_states_are_probabilities_from_the_first(name: str, mutations: list[int]) -> None:
    """The latent may be any vector; h - ½ is what a centred cell puts out (S0, zoo.md 2.3)."""
    model = tiny(name, norm="none", cell={"name": "mgru", "mutations": mutations}).eval()
    tokens, _ = batch(model.task)
    for z in (-3.0, 0.0, 1.0, 3.0):
        h = model.outputs(tokens, torch.full((1, len(tokens), 4), z))
        h = h + 0.5 if 6 in mutations else h
        assert h.min() >= 0
        assert h.max() <= 1
    with_memory = tiny(name, norm="none", cell="gru").eval()
    start = torch.full((1, len(tokens), 4), 3.0)
    assert with_memory.outputs(tokens, start).max() > 1  # other states may be anything
