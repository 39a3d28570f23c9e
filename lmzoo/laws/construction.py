"""A model is determined by its config, its seed and its state dict."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lmzoo.base.config import from_dict, to_dict
from lmzoo.base.errors import UserError
from lmzoo.contract import LanguageModel
from lmzoo.laws.support import assert_close, log_prob, new_model
from lmzoo.laws.tiny import batch, default_source


def law_checkpoint_is_exact(model: LanguageModel) -> None:
    """A saved state dict that is loaded into another model gives the same bits."""
    other = new_model(model, seed=1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weights.pt"
        torch.save(model.state_dict(), path)
        other.load_state_dict(torch.load(path, weights_only=True))
    data = batch(model.task)
    assert_close(log_prob(other, *data), log_prob(model, *data), 0, "reloaded scores")


def law_seed_decides_the_weights(model: LanguageModel) -> None:
    """Every weight is drawn by its module's reset_parameters, from the seed and nothing else."""
    weights, others = (_weights(new_model(model, seed=seed)) for seed in (0, 1))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        before = torch.get_rng_state()
        repeated = _weights(new_model(model, seed=0))
        undrawn = [name for name, weight in repeated.items() if weight.isnan().any()]
        assert not undrawn, f"no reset_parameters() draws {undrawn}"
        equal = all(weights[name].equal(repeated[name]) for name in weights)
        assert equal, "equal seeds give different weights"
        assert before.equal(torch.get_rng_state()), "building changes the global generator"
    if weights:
        differ = any(not weights[name].equal(others[name]) for name in weights)
        assert differ, "different seeds give equal weights"


def law_config_survives_json(model: LanguageModel) -> None:
    """Config -> dict -> JSON -> dict -> config gives an equal config."""
    text = json.dumps(to_dict(model.config), allow_nan=False)
    loaded = from_dict(type(model.config), json.loads(text))
    assert loaded == model.config, f"{model.config} is loaded as {loaded}"
    assert json.dumps(to_dict(loaded)) == text, "equal configs have different JSON"


def law_config_rejects_wrong_values(model: LanguageModel) -> None:
    """A wrong value in any field, and an unknown field, raise an error of one line."""
    fields, wrong = to_dict(model.config), "no such thing"
    for path in [*_field_paths(fields), ("no_such_field",)]:
        try:
            from_dict(type(model.config), _replaced(fields, path, wrong))
        except UserError as error:
            message = str(error)
            known = path != ("no_such_field",)
            assert wrong in message or not known, f"{path}: {message!r} does not name the value"
            assert any(part in message for part in path), f"{message!r} does not name {path[-1]}"
            assert "\n" not in message, f"more than one line: {message!r}"
        else:
            raise AssertionError(f"{'.'.join(path)} = {wrong!r} is accepted")


def law_computes_on_its_device(model: LanguageModel) -> None:
    """Scores and gradients are computed on the device of the weights, and only there.

    The device is torch's `meta`, which computes shapes only and raises if it meets another device.
    It cannot compute a shape that depends on data; the check of such a model ends there.
    """
    if model.closed_form:
        return
    device = torch.device("meta")
    columns = (*batch(model.task), *default_source(model, 5))
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


def _weights(model: LanguageModel) -> dict[str, Tensor]:
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def _field_paths(fields: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for key, value in fields.items():
        if isinstance(value, Mapping):
            yield from ((key, *rest) for rest in _field_paths(value))
        else:
            yield (key,)


def _replaced(fields: Mapping[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """Return the fields with another value at `path`."""
    key, *rest = path
    return {**fields, key: _replaced(fields[key], tuple(rest), value) if rest else value}
