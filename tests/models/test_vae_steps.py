"""Stepwise decoding of VAEs equals scoring each prefix from its start."""

from typing import Any

import pytest

from lmzoo.laws import Law
from lmzoo.laws.density import law_advance_equals_next_log_prob
from lmzoo.laws.state import law_state_has_the_declared_size
from tests.models.equivalence import small

FIELDS: list[dict[str, Any]] = [
    {"samples": 1},
    {"samples": 3, "norm": "none"},
    {"samples": 3, "cell": "lstm"},
    {"samples": 3, "cell": "hm_lstm", "norm": "l2"},
    {"samples": 3, "cell": {"name": "mgru", "mutations": [4]}, "norm": "std"},
    {"samples": 3, "norm": "time_std_causal"},
]


@pytest.mark.parametrize("law", [law_advance_equals_next_log_prob, law_state_has_the_declared_size])
@pytest.mark.parametrize("name", ["gru_vae", "gru_ternary_vae"])
@pytest.mark.parametrize("fields", FIELDS, ids=str)
def test_stepwise_decoding_equals_reading_the_whole_prefix(
    law: Law, name: str, fields: dict[str, Any]
) -> None:
    """Parameters are scaled up, so that the draws have different weights."""
    law(small(name, **fields))
