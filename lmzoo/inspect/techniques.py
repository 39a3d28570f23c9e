"""The diagnostics that `python -m lmzoo list` shows beside the models."""

import lmzoo.experiments.transformer_toy  # noqa: F401  it registers itself
from lmzoo.catalogue import technique


def _row(name: str, document: str, source: str, summary: str) -> None:
    technique(name, family="diagnostic", document=document, source=source, summary=summary)


_row(
    "metric_logppl", "S0, S4", "Jelinek et al. 1977; S0",
    "Log-perplexity per token and as mean over sentences; every run reports both.",
)  # fmt: skip
_row(
    "latent_posterior_report", "S0", "S0",
    "Discrete latents, attention maps, segment boundaries: numbers and pictures (posterior).",
)  # fmt: skip
_row(
    "causality_audit", "S0", "derived from S0",
    "Which scores move when a later word, the padding or another row is changed (audit).",
)  # fmt: skip
_row(
    "iid_floor", "S0", "derived from S0",
    "Whether a row scores below the entropy of independent tokens, which none may (audit --iid).",
)  # fmt: skip
_row(
    "leak_budget", "S0", "derived from S0",
    "What knowing the bag of a sequence's tokens would be worth, in nats a token (budget).",
)  # fmt: skip
_row(
    "gradient_horizon", "S3, S4", "Hochreiter 1991; Bengio et al. 1994",
    "How much of a loss's gradient reaches the states before it (horizon).",
)  # fmt: skip
_row(
    "gate_and_attention_report", "S1", "derived from S1",
    "How open gates are, how large states, how wide attention, by epoch too (gates).",
)  # fmt: skip
