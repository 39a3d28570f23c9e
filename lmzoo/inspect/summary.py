"""Summarise the gates, states and attention of a model on a few sequences.

The sequences are a function of the corpus and the noise has a fixed seed, so summaries of two
models, or of two epochs of a model, differ by the weights alone. The model is not changed.

Statistics of the gates and states of a recurrent model.

    mean       E[g]                      over sequences, steps and units
    spread     √ E[(g − E g)²]
    saturated  share of g < 0.05 or g > 0.95, where σ' < 0.05 and almost no gradient passes
    state      ‖s_t‖ of each state vector at every step, mean over sequences

A gate that is always saturated is constant. A gate that is always near ½ only averages.

Source: S1, S4.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lmzoo.base.errors import UserError
from lmzoo.contract import LanguageModel
from lmzoo.data.corpus import Corpus, Sequences
from lmzoo.inspect.attention import edges, heads
from lmzoo.inspect.hooks import Activity, CellStep, has_activity, record_activity
from lmzoo.kernels.device import device_of, device_scope

LOW, HIGH = 0.05, 0.95
"""A gate below LOW or above HIGH is saturated."""

VECTOR_NDIM = 2
"""Axes of a state vector, (B, H). State tensors with more axes grow with the sequence."""


@dataclass(frozen=True)
class Gate:
    """Statistics of one gate of one cell."""

    cell: str
    name: str
    mean: float
    spread: float
    saturated: float


@dataclass(frozen=True)
class StateNorms:
    """Norms of the state of one cell."""

    cell: str
    norms: list[list[float]]
    """For each state vector, h first: the norm at every step."""


def gates(activity: Activity) -> list[Gate]:
    """Return the statistics of every gate of every cell that ran."""
    found = []
    for cell, steps in activity.cell_steps.items():
        for name in steps[0].gates:
            values = torch.cat([step.gates[name].flatten() for step in steps]).double()
            found.append(_gate(cell, name, values))
    return found


def _gate(cell: str, name: str, values: Tensor) -> Gate:
    saturated = (values < LOW) | (values > HIGH)
    return Gate(
        cell,
        name,
        mean=values.mean().item(),
        spread=values.std(correction=0).item(),
        saturated=saturated.double().mean().item(),
    )


def state_norms(activity: Activity) -> list[StateNorms]:
    """Return the norms of the state vectors of every cell that ran."""
    return [StateNorms(cell, _norms(steps)) for cell, steps in activity.cell_steps.items()]


def _norms(steps: list[CellStep]) -> list[list[float]]:
    vectors = [i for i, part in enumerate(steps[0].state) if part.ndim == VECTOR_NDIM]
    return [[step.state[i].norm(dim=-1).mean().item() for step in steps] for i in vectors]


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
