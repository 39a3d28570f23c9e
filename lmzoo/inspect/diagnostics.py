"""Register the diagnostics, which `lmzoo list` shows next to the models."""

from lmzoo.base.registry import technique

DIAGNOSTICS = (
    (
        "metric_logppl", "S0, S4", "Jelinek et al. 1977; S0",
        "Log-perplexity per token and as mean over sentences; every run reports both.",
    ),
    (
        "latent_posterior_report", "S0", "S0",
        "Discrete latents, attention maps, segment boundaries: numbers and plots (posterior).",
    ),
    (
        "causality_audit", "S0", "derived from S0",
        "Whether scores depend on later tokens, padding or the rest of the batch (audit).",
    ),
    (
        "iid_floor", "S0", "derived from S0",
        "Whether a row scores below the entropy of independent tokens, as leaks do (audit --iid).",
    ),
    (
        "leak_budget", "S0", "derived from S0",
        "The gain from knowing the bag of a sequence's tokens, in nats per token (budget).",
    ),
    (
        "gradient_horizon", "S3, S4", "Hochreiter 1991; Bengio et al. 1994",
        "How much of the gradient of a loss reaches earlier states (horizon).",
    ),
    (
        "transformer_toy_diagnostic", "S2", "S2",
        "A regression that needs warm-up (benchmarks/transformer_toy.py).",
    ),
)  # fmt: skip
"""Name, source documents, source and summary of each diagnostic."""

for _name, _document, _source, _summary in DIAGNOSTICS:
    technique(
        _name,
        family="diagnostic",
        document=_document,
        source=_source,
        summary=_summary,
    )
