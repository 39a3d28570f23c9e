"""Summarise the gates, states and attention of a model on a few sequences.

The sequences are a function of the corpus and the noise has a fixed seed, so summaries of two
models, or of two epochs of a model, differ by the weights alone. The model is not changed.
"""

import dataclasses
from typing import Any

import torch

from lmzoo.contract import LanguageModel
from lmzoo.data.corpus import Corpus, Sequences
from lmzoo.device import device_of, device_scope
from lmzoo.errors import UserError
from lmzoo.inspect.attention import edges, heads
from lmzoo.inspect.gates import gates, state_norms
from lmzoo.inspect.hooks import has_activity, record_activity

SEQUENCES = 64
"""Number of sequences over which the statistics are means."""

Summary = dict[str, list[Any]]
"""Lists of `Gate`, `StateNorms`, `Head` and `Edges`; keys `gates`, `states`, `heads`, `edges`."""


def equal_length_sequences(corpus: Corpus) -> Sequences:
    """Return validation sequences of the most frequent length, without padding.

    In a corpus of pairs, their sources also have one length, the most frequent among these.
    """
    part = corpus.valid
    length = part.lengths.mode().values
    kept = part.lengths == length
    sources = part.sources
    if sources:
        source_length = sources[1][kept].mode().values
        kept = kept & (sources[1] == source_length)
        sources = (sources[0][kept][:SEQUENCES, :source_length], sources[1][kept][:SEQUENCES])
    tokens = part.tokens[kept][:SEQUENCES, :length]
    return Sequences(tokens, part.lengths[kept][:SEQUENCES], sources)


@torch.no_grad()
def summarise_activity(model: LanguageModel, part: Sequences, name: str) -> Summary:
    """Summarise the activity of the model while it scores these sequences.

    Args:
        model: The model; its mode and random state are restored.
        part: Sequences without padding; see `equal_length_sequences`.
        name: Name of the row, for the error message.

    Raises:
        UserError: The model has neither a recurrent cell nor attention.
    """
    require_activity(model, name)
    was_training, part = model.training, part.to(device_of(model))
    with (
        torch.random.fork_rng(devices=[]),
        device_scope(model),
        record_activity(model.eval()) as activity,
    ):
        torch.manual_seed(0)
        model.log_prob(part.tokens, part.lengths, *part.sources)
    summary = {
        "gates": gates(activity),
        "states": state_norms(activity),
        "heads": heads(model, activity),
        "edges": edges(model, activity, len(part)),
    }
    model.train(was_training)
    return summary


def require_activity(model: LanguageModel, name: str) -> None:
    """Check that there is something to summarise.

    Raises:
        UserError: The model has neither a recurrent cell nor attention.
    """
    if not has_activity(model):
        raise UserError(
            f"{name} has neither a recurrent cell nor attention; use a row such as gru or gpt"
        )


def as_json(summary: Summary) -> dict[str, list[dict[str, Any]]]:
    """Convert a summary to JSON types."""
    return {key: list(map(dataclasses.asdict, rows)) for key, rows in summary.items()}
