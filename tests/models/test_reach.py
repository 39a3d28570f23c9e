"""Which earlier tokens a prediction depends on, and whether it depends on their order."""

from typing import Any

import pytest
import torch

from tests.models.equivalence import LENGTH, lag_dependence, permute_tokens, small
from tests.models.test_attention_decoder import DECODERS
from tests.models.test_modern_decoder import SIZES
from tests.tiny import CLOSE, every_sequence

WIDE = {"width": 8, "spread": 0.3}
MODERN = {**SIZES, "layers": 1}
LAGGED = [f"lagged_aggregate_markov{row}" for row in ("", "_free", "_scaled", "_sphere")]
WINDOWED = [
    *("ngram_log_bilinear", "permutation_log_bilinear", "log_bilinear_mixture", "markov_mlp"),
    *("latent_parent_uniform", *LAGGED),
]
"""Rows that read the tokens of their window."""

LIMITED: list[tuple[str, dict[str, Any], int]] = [
    *((name, {}, 1) for name in ("aggregate_markov", "local_hmm", "bigram_latent_crf")),
    ("trigram_latent_crf", {}, 2),
    *((name, {"window": k}, k) for name in WINDOWED for k in (1, 2, 3)),
    ("latent_parent_uniform", {"window": None}, 3),
    *(("gated_convolution", {"layers": 1, "window": k}, k) for k in (1, 2, 3)),
    ("gated_convolution", {"layers": 2, "window": 2}, 3),
    *(("local_attention", {"layers": 1, "window": k, **WIDE}, k) for k in (1, 2, 3)),
    ("local_attention", {"layers": 2, "window": 2, **WIDE}, 3),
    ("modern_decoder", {**MODERN, "cuts": ["convolution"]}, 2),
    *(("set_transformer_causal", {"points": points}, 3) for points in (0, 1, 3)),
    # Hard attention ignores tokens that no head selects.
    *((name, WIDE, 3) for name in DECODERS if name != "hard_attention"),
]
"""Row, fields, and how many tokens back the prediction reads."""

ORDERED: list[tuple[str, dict[str, Any], bool]] = [
    ("permutation_log_bilinear", {"window": 3, "weights": "uniform"}, False),
    ("latent_parent_uniform", {"window": 4}, False),
    *(
        ("transformer_decoder", {"layers": 1, "width": 8, "positions": kind}, kind != "none")
        for kind in ("none", "add", "concat", "learned")
    ),
    *(
        ("set_transformer_causal", {"points": points, "layers": 1, "positions": "none"}, False)
        for points in (0, 2)
    ),
    ("modern_decoder", {**MODERN, "cuts": ["convolution", "window"]}, True),
    ("modern_decoder", {**MODERN, "cuts": ["convolution", "window", "rotation"]}, False),
]
"""Row, fields, and whether the order of the tokens before the last matters."""


@pytest.mark.parametrize(("name", "fields", "reach"), LIMITED, ids=str)
def test_a_prediction_depends_on_the_tokens_within_reach(name, fields, reach) -> None:
    assert lag_dependence(small(name, **fields)) == [back <= reach for back in (1, 2, 3)]


@pytest.mark.parametrize("order", [[1, 0, 2], [2, 1, 0]], ids=str)
@pytest.mark.parametrize(("name", "fields", "matters"), ORDERED, ids=str)
def test_the_order_of_earlier_tokens_matters_if_positions_are_known(
    name, fields, matters, order
) -> None:
    model = small(name, **fields).eval()
    prefix = every_sequence(model.task)[0][:, : LENGTH - 1]
    order = order if fields.get("window") in (3, 4) else [1, 0]  # attention: the last is the query
    moved = permute_tokens(prefix, torch.tensor(order), at=1)
    with torch.no_grad():
        change = (model.next_log_prob(moved) - model.next_log_prob(prefix)).abs().max()
    assert change > 1e-3 if matters else change < CLOSE
