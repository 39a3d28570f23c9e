"""A VAE with an uninformative latent equals the plain recurrent model."""

import pytest
import torch

from lmzoo.contract import LanguageModel
from lmzoo.laws.batching import law_padding_is_ignored, law_scores_have_shape
from lmzoo.laws.density import law_next_is_a_distribution
from lmzoo.laws.learning import law_every_parameter_learns
from tests.models.equivalence import assert_same_model, copy_weights, set_weights, small
from tests.tiny import batch, tiny


def decoder_of(model: LanguageModel) -> list[str]:
    """Return the names of the parameters that a plain recurrent model has too."""
    whole = dict(model.named_parameters())
    return [name for name in whole if name.startswith(("embedding", "cell", "emission"))]


def set_zero_kl(model: LanguageModel) -> None:
    """Set q and p to N(0, β_0^{-2}) for every sentence, so that KL = 0."""
    set_weights(model, {"z.to_mean": 0.0, "z.prior_mean": 0.0})
    copy_weights(model, model, "z.prior_log_beta:z.log_beta")


@pytest.mark.parametrize(("name", "plain"), [("gru_vae", "gru"), ("rnn_vae", "rnn")])
def test_collapsed_posterior_is_the_plain_model_with_one_initial_state(
    name: str, plain: str
) -> None:
    """z equals the prior mean up to 1e-9: the posterior collapse that S0 reports."""
    vae, recurrent = small(name), small("recurrent_lm", cell=plain, starts=1)
    copy_weights(recurrent, vae, *decoder_of(vae))
    set_zero_kl(vae)
    set_weights(vae, {"z.log_beta": 20.0, "z.prior_log_beta": 20.0})
    set_weights(recurrent, {"starts.vectors": 0.0})
    assert_same_model(vae, recurrent)


@pytest.mark.parametrize("cell", ["gla", "hm_lstm", {"name": "mgu", "cuts": [0, 4, 5]}], ids=str)
def test_any_cell_obeys_the_laws(cell: object) -> None:
    """The last cell is that of the row `DLM51 0,4,5` of S0."""
    model = tiny("gru_vae", cell=cell)
    law_scores_have_shape(model)
    law_padding_is_ignored(model)
    law_next_is_a_distribution(model)
    law_every_parameter_learns(model)


@torch.no_grad()
def test_encoder_reads_every_scored_token_and_nothing_else() -> None:
    model = small("gru_vae")
    tokens, _ = batch(model.task)
    lengths = torch.full((len(tokens),), model.task.length - 1)
    before = model.encode_sentence(tokens, lengths)
    for t in range(model.task.length):
        changed = tokens.clone()
        changed[:, t] = (tokens[:, t] + 1) % model.task.vocab
        moved = (model.encode_sentence(changed, lengths) - before).abs().amax(1)
        assert ((moved > 1e-4) == (1 <= t < model.task.length - 1)).all()


@torch.no_grad()
@pytest.mark.parametrize("name", ["gru_vae", "gru_ternary_vae", "gru_autoencoder"])
@pytest.mark.parametrize("mutations", [[4], [4, 6]], ids=str)
def test_bernoulli_states_are_probabilities_for_any_latent(name: str, mutations: list[int]) -> None:
    """Any vector z is mapped to a valid state. A centred cell outputs h - ½."""
    model = tiny(name, norm="none", cell={"name": "mgru", "mutations": mutations}).eval()
    tokens, _ = batch(model.task)
    for z in (-3.0, 0.0, 1.0, 3.0):
        h = model.outputs(tokens, torch.full((1, len(tokens), 4), z))
        h = h + 0.5 if 6 in mutations else h
        assert h.min() >= 0
        assert h.max() <= 1
    with_memory = tiny(name, norm="none", cell="gru").eval()
    start = torch.full((1, len(tokens), 4), 3.0)
    assert with_memory.outputs(tokens, start).max() > 1  # states of other cells are unbounded
