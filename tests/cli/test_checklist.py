"""`lmzoo list` has every model and technique of the source documents S0..S4."""

import json
from collections.abc import Iterator

import pytest

CHECKLIST = """
S0 - = initial_state_mixture norm mixture_emission vector_emission latent_posterior_report
    causality_audit iid_floor leak_budget
S0 b = 50:rnn_vae 51:gru_vae 52:gru_ternary_vae
S0 r = 53:gru_autoencoder 54:rnn_autoencoder 55:linear_autoencoder 56:mlp_autoencoder
S0 y = 1:ngram_log_bilinear 2:latent_parent_uniform 3:permutation_log_bilinear
    4:log_bilinear_mixture 5:latent_parent_positional 6:latent_parent_typed 7:interpolated_bigram
    8:multi_transition_bigram 9:unigram_mixture 10:aggregate_markov 11:rnn_lm
    13:aligned_aggregate_markov 14:two_parent_aggregate_markov 15:local_hmm 16:bigram_latent_crf
    17:trigram_latent_crf 18:prototype_rotation_mixture 19:factorial_aggregate_markov
    20:lagged_aggregate_markov 21:lagged_aggregate_markov_free 22:lagged_aggregate_markov_sphere
    23:lstm_lm_sphere 24:lagged_aggregate_markov_scaled 25:aligned_aggregate_markov_sphere
    26:lstm_mixture 27:trigram_latent_crf_sphere 28:prototype_rotation_mixture_sphere
    29:rnn_mixture 30:slot_ngram 31:chain_slot_ngram 32:chain_slot_ngram
    33:chain_slot_ngram_emission 34:chain_slot_lstm_emission 35:chain_slot_lstm 41:gpt_mixture
    43:gru_lm_sphere 44:gru_mixture 45:gru_mixture 46:mutable_mgu_mixture 47:mutable_mgru_mixture
S0,S3 y = 12:lstm_lm 40:gpt
S0,S4 - = metric_logppl
S1 y = hamming_emission qk_norm_attention hard_attention star_transformer_causal
    set_transformer_causal pcfg
S2 - = transformer_toy_diagnostic lr_warmup init_schemes
S2 y = gated_feedback_rnn gated_feedback_lstm gated_feedback_gru hm_lstm grid_lstm
S3 - = spectral_init greedy beam_search positional_encoding multi_head_attention
S3 c = seq2seq seq2seq_dot_attention transformer_encdec
S3 o = word2vec_cbow word2vec_skipgram
S3 r = masked_lm
S3 r|c = span_corruption
S3 y = rnn_vanilla lstm_peephole lstm_coupled onehot_embedding nce negative_sampling elmo
    transformer_decoder transformer_decoder_preln
S3,S4 - = grad_clip gradient_horizon
S3,S4 y = gru
S4 - = num_layers bidirectional forget_bias
S4 y = ngram_count markov_mlp latent_ar backward_lm lstm_no_forget
"""
"""Source documents, kind of score, and the rows, those of S0 with numbers. Kinds are exact (y),
bound (b), reconstruction (r), conditional (c), objective (o), or - for rows that are no models."""

SCORES = {
    "y": "exact", "b": "bound", "r": "reconstruction", "c": "conditional", "o": "objective", "-": ""
}  # fmt: skip


def entries() -> Iterator[tuple[str, str, str, str]]:
    """Yield id, name, documents and kind; alternatives of a kind are joined by a bar."""
    for line in CHECKLIST.replace("\n    ", " ").strip().splitlines():
        documents, kind, _, *rows = line.split()
        for row in rows:
            number, _, name = row.rpartition(":")
            row_id = ""
            if number:
                row_id = f"DLM{number}"
            yield row_id, name, documents, kind


def test_the_checklist_is_complete():
    ids = {row_id for row_id, *_ in entries()}
    missing = {36, 37, 38, 39, 42, 48, 49}  # numbers that S0 does not use
    expected = {f"DLM{n}" for n in range(1, 57) if n not in missing}
    # Rows of other documents have no number.
    assert ids == expected | {""}
    assert len(list(entries())) == 104


@pytest.fixture
def listed(printed):
    """The rows that `lmzoo list` has, by their names."""
    rows = json.loads(printed("list", "--json"))
    return {row["name"]: row for row in rows}


def test_every_entry_is_listed(listed):
    for row_id, name, documents, score in entries():
        row = listed[name]
        known_documents = row["document"].replace(" ", "").split(",")
        scores = {SCORES[kind] for kind in score.split("|")}
        assert row_id in row["aliases"] or not row_id, name
        assert set(documents.split(",")) <= set(known_documents), name
        assert row["score"] in scores, name
        assert (row["model"] is None) == (score == "-"), name


def test_every_model_but_counts_has_parameters(listed):
    for _, name, *_ in entries():
        row = listed[name]
        if row["model"] and row["family"] != "count":
            assert row["parameters"] > 0, name
