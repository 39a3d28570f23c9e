"""A model is its config, its seed and its state dict, and nothing else."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lmzoo.config import from_dict, to_dict
from lmzoo.contract import LanguageModel
from lmzoo.errors import UserError
from tests.laws.ask import fresh, log_prob, same
from tests.tiny import batch, given


def law_checkpoint_is_exact(model: LanguageModel) -> None:
    """The state dict, through a file and into other weights, gives the same bits."""
    other = fresh(model, seed=1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weights.pt"
        torch.save(model.state_dict(), path)
        other.load_state_dict(torch.load(path, weights_only=True))
    tokens, lengths = batch(model.task)
    same(log_prob(other, tokens, lengths), log_prob(model, tokens, lengths), 0, "reloaded scores")


def law_seed_decides_the_weights(model: LanguageModel) -> None:
    """Every weight is drawn by its module's reset_parameters, from the seed and nothing else."""
    one, other = weights(fresh(model, seed=0)), weights(fresh(model, seed=1))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        before = torch.get_rng_state()
        again = weights(fresh(model, seed=0))
        undrawn = [name for name, weight in again.items() if weight.isnan().any()]
        assert not undrawn, f"no reset_parameters() draws {undrawn}"
        assert all(one[name].equal(again[name]) for name in one), "equal seeds give other weights"
        assert before.equal(torch.get_rng_state()), "building moves the global generator"
    if one:
        assert any(not one[name].equal(other[name]) for name in one), "seeds give equal weights"


def law_config_survives_json(model: LanguageModel) -> None:
    """Config -> dict -> JSON -> dict -> an equal config."""
    text = json.dumps(to_dict(model.config), allow_nan=False)
    back = from_dict(type(model.config), json.loads(text))
    assert back == model.config, f"{back} came back for {model.config}"
    assert json.dumps(to_dict(back)) == text, "equal configs, other text"


def law_config_refuses_nonsense(model: LanguageModel) -> None:
    """Any field with a senseless value, and a field that is none, is refused in one line."""
    fields, nonsense = to_dict(model.config), "no such thing"
    for path in [*leaves(fields), ("no_such_field",)]:
        try:
            from_dict(type(model.config), replaced(fields, path, nonsense))
        except UserError as error:
            said = str(error)
            known = path != ("no_such_field",)
            assert nonsense in said or not known, f"{path}: value is not named in {said!r}"
            assert any(part in said for part in path), f"{path[-1]} is not named in {said!r}"
            assert "\n" not in said, f"more than one line: {said!r}"
        else:
            raise AssertionError(f"{'.'.join(path)} = {nonsense!r} is accepted")


def weights(model: LanguageModel) -> dict[str, Tensor]:
    """The parameters by name."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def leaves(fields: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """The paths of all fields, parts' fields included."""
    for key, value in fields.items():
        yield from (
            ((key, *rest) for rest in leaves(value)) if isinstance(value, Mapping) else [(key,)]
        )


def replaced(fields: Mapping[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """The fields with another value at `path`."""
    key, *rest = path
    return {**fields, key: replaced(fields[key], tuple(rest), value) if rest else value}


def law_computes_where_its_weights_are(model: LanguageModel) -> None:
    """Scores and gradients are made on the device of the weights, and nothing of them elsewhere.

    The device is torch's `meta`, which computes shapes only and mixes with no other. Where a
    shape depends on the data it has no answer, and that much of the model is not asked.
    """
    if model.closed_form:
        return
    device = torch.device("meta")
    columns = (*batch(model.task), *given(model, 5))
    model.to(device).train()
    with device:
        try:
            model.objective(*(column.to(device) for column in columns)).sum().backward()
        except NotImplementedError:
            return
        except RuntimeError as error:
            if "item() cannot be called on meta" in str(error):
                return
            raise AssertionError(str(error)) from error
    for name, parameter in model.named_parameters():
        assert parameter.grad is None or parameter.grad.device == device, f"gradient of {name}"
