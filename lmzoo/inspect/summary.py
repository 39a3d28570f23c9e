"""One look at a model: its gates, its states and its attention on a few sequences.

The sequences are the same whenever a corpus is asked, so that two looks, at two models or
at one model of two epochs, differ by the weights alone. All noise comes from one fixed
stream, and the model is left as it was found.
"""

import dataclasses
from typing import Any

import torch

from lmzoo.contract import LanguageModel
from lmzoo.data.corpus import Corpus, Sequences
from lmzoo.device import device_of, device_scope
from lmzoo.errors import UserError
from lmzoo.inspect.attention import edges, heads
from lmzoo.inspect.gates import carries, gates
from lmzoo.inspect.hooks import has_activity, record_activity

SEQUENCES = 64
"""How many sequences the numbers are means over."""

Found = dict[str, list[Any]]
"""`Gate`s, `Carry`s (states), `Head`s and `Edges` under their names in the plural."""


def equal_length_sequences(corpus: Corpus) -> Sequences:
    """Validation sequences of the commonest lengths, cut to them: no pad is looked at."""
    part = corpus.valid
    length = part.lengths.mode().values
    kept = part.lengths == length
    given = part.given
    if given:
        source_length = given[1][kept].mode().values
        kept = kept & (given[1] == source_length)
        given = (given[0][kept][:SEQUENCES, :source_length], given[1][kept][:SEQUENCES])
    return Sequences(part.tokens[kept][:SEQUENCES, :length], part.lengths[kept][:SEQUENCES], given)


@torch.no_grad()
def summarise_activity(model: LanguageModel, part: Sequences, name: str) -> Found:
    """What there is to be told of the model while it scores these sequences.

    Raises:
        UserError: it has neither a gate nor an attention that is asked.
    """
    require_watchable(model, name)
    was_training, part = model.training, part.to(device_of(model))
    with (
        torch.random.fork_rng(devices=[]),
        device_scope(model),
        record_activity(model.eval()) as seen,
    ):
        torch.manual_seed(0)
        model.log_prob(part.tokens, part.lengths, *part.given)
    found = {
        "gates": gates(seen),
        "states": carries(seen),
        "heads": heads(model, seen),
        "edges": edges(model, seen, len(part)),
    }
    model.train(was_training)
    return found


def require_watchable(model: LanguageModel, name: str) -> None:
    """Refuse a model in which nothing opens, is carried or is looked at.

    Raises:
        UserError: it has neither a recurrent cell nor attention.
    """
    if not has_activity(model):
        raise UserError(
            f"{name} has neither a recurrent cell nor attention; give a row such as gru or gpt"
        )


def plain(found: Found) -> dict[str, list[dict[str, Any]]]:
    """The same as JSON has it."""
    return {key: list(map(dataclasses.asdict, rows)) for key, rows in found.items()}
