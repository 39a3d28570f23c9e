"""`lmzoo list` has every model and technique of the source documents S0..S4."""

import json

CHECKLIST = """
DLM1 ngram_log_bilinear S0 y            | DLM2 latent_parent_uniform S0 y
DLM3 permutation_log_bilinear S0 y      | DLM4 log_bilinear_mixture S0 y
DLM5 latent_parent_positional S0 y      | DLM6 latent_parent_typed S0 y
DLM7 interpolated_bigram S0 y           | DLM8 multi_transition_bigram S0 y
DLM9 unigram_mixture S0 y               | DLM10 aggregate_markov S0 y
DLM11 rnn_lm S0 y                       | DLM12 lstm_lm S0,S3 y
DLM13 aligned_aggregate_markov S0 y     | DLM14 two_parent_aggregate_markov S0 y
DLM15 local_hmm S0 y                    | DLM16 bigram_latent_crf S0 y
DLM17 trigram_latent_crf S0 y           | DLM18 prototype_rotation_mixture S0 y
DLM19 factorial_aggregate_markov S0 y   | DLM20 lagged_aggregate_markov S0 y
DLM21 lagged_aggregate_markov_free S0 y | DLM22 lagged_aggregate_markov_sphere S0 y
DLM23 lstm_lm_sphere S0 y               | DLM24 lagged_aggregate_markov_scaled S0 y
DLM25 aligned_aggregate_markov_sphere S0 y | DLM26 lstm_mixture S0 y
DLM27 trigram_latent_crf_sphere S0 y    | DLM28 prototype_rotation_mixture_sphere S0 y
DLM29 rnn_mixture S0 y                  | DLM30 slot_ngram S0 y
DLM31 chain_slot_ngram S0 y             | DLM32 chain_slot_ngram S0 y
DLM33 chain_slot_ngram_emission S0 y    | DLM34 chain_slot_lstm_emission S0 y
DLM35 chain_slot_lstm S0 y              | DLM40 gpt S0,S3 y
DLM41 gpt_mixture S0 y                  | DLM43 gru_lm_sphere S0 y
DLM44 gru_mixture S0 y                  | DLM45 gru_mixture S0 y
DLM46 mutable_mgu_mixture S0 y          | DLM47 mutable_mgru_mixture S0 y
DLM50 rnn_vae S0 b                      | DLM51 gru_vae S0 b
DLM52 gru_ternary_vae S0 b              | DLM53 gru_autoencoder S0 r
DLM54 rnn_autoencoder S0 r              | DLM55 linear_autoencoder S0 r
DLM56 mlp_autoencoder S0 r              | - initial_state_mixture S0 -
- norm S0 -                             | - mixture_emission S0 -
- vector_emission S0 -                  | - metric_logppl S0,S4 -
- latent_posterior_report S0 -          | - causality_audit S0 -
- iid_floor S0 -                        | - leak_budget S0 -
- hamming_emission S1 y                 | - qk_norm_attention S1 y
- hard_attention S1 y                   | - star_transformer_causal S1 y
- set_transformer_causal S1 y           | - pcfg S1 y
- gated_feedback_rnn S2 y               | - gated_feedback_lstm S2 y
- gated_feedback_gru S2 y               | - hm_lstm S2 y
- grid_lstm S2 y                        | - transformer_toy_diagnostic S2 -
- lr_warmup S2 -                        | - init_schemes S2 -
- rnn_vanilla S3 y                      | - spectral_init S3 -
- grad_clip S3,S4 -                     | - lstm_peephole S3 y
- lstm_coupled S3 y                     | - gru S3,S4 y
- onehot_embedding S3 y                 | - word2vec_cbow S3 o
- word2vec_skipgram S3 o                | - nce S3 y
- negative_sampling S3 y                | - greedy S3 -
- beam_search S3 -                      | - elmo S3 y
- seq2seq S3 c                          | - seq2seq_dot_attention S3 c
- positional_encoding S3 -              | - multi_head_attention S3 -
- transformer_decoder S3 y              | - transformer_decoder_preln S3 y
- transformer_encdec S3 c               | - masked_lm S3 r
- span_corruption S3 r|c                | - ngram_count S4 y
- markov_mlp S4 y                       | - latent_ar S4 y
- backward_lm S4 y                      | - num_layers S4 -
- bidirectional S4 -                    | - forget_bias S4 -
- lstm_no_forget S4 y                   | - gradient_horizon S3,S4 -
"""
"""Id, name, source documents and kind of score: exact (y), bound (b), reconstruction (r),
conditional (c), objective (o), or - for a row that is not a model."""

SCORES = {
    "y": "exact", "b": "bound", "r": "reconstruction", "c": "conditional", "o": "objective", "-": ""
}  # fmt: skip


def entries() -> list[tuple[str, str, str, str]]:
    """Return the entries; alternatives of a score are joined by a bar without spaces."""
    cells = [cell.split() for line in CHECKLIST.strip().splitlines() for cell in line.split(" | ")]
    return [(row_id, name, documents, score) for row_id, name, documents, score in cells]


def test_the_checklist_is_complete() -> None:
    ids = [row_id for row_id, *_ in entries() if row_id != "-"]
    missing = {36, 37, 38, 39, 42, 48, 49}  # numbers that S0 does not use
    assert ids == [f"DLM{n}" for n in range(1, 57) if n not in missing]
    assert len(entries()) == 104


def test_every_entry_is_listed(lmzoo) -> None:
    listed = {row["name"]: row for row in json.loads(lmzoo("list", "--json")[1])}
    wrong = []
    for row_id, name, documents, score in entries():
        row = listed.get(name)
        if row is None or not (
            (row_id == "-" or row_id in row["aliases"])
            and set(documents.split(",")) <= set(row["document"].replace(" ", "").split(","))
            and row["score"] in {SCORES[kind] for kind in score.split("|")}
            and (row["model"] is None) == (score == "-")
            and (row["model"] is None or row["parameters"] > 0 or row["family"] == "count")
        ):
            wrong.append((name, row))
    assert wrong == []
