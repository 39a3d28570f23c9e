"""Laws of every model: batches, gradients, construction, and what a model says of itself."""

import copy
import dataclasses
import json
import math
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from lmzoo.base.config import from_dict, to_dict
from lmzoo.base.errors import UserError
from lmzoo.base.plain import Fields, FieldsDict, Texts
from lmzoo.contract import START, UNKNOWN, LanguageModel
from lmzoo.laws.probes import disturbed, obey
from lmzoo.laws.tiny import (
    CLOSE,
    FINE,
    assert_close,
    batch,
    default_source,
    every_sequence,
    log_prob,
    loss,
    new_model,
    random_source,
    seeded,
    training_loss,
)

WINDOW = 6
"""Length of the sequences: one more than the window of a cell's convolution."""
DRAWS = 6
"""Number of initial weights; a ReLU that is off for all sequences under one is on under another."""


def law_scores_have_shape(model: LanguageModel):
    """Scores are (B, T), finite where 1 <= t < length and exactly 0 elsewhere."""
    tokens, lengths = batch(model.task)
    scores = log_prob(model, tokens, lengths)
    assert scores.shape == tokens.shape, f"log_prob: {scores.shape}, tokens: {tokens.shape}"
    t = torch.arange(model.task.length)
    is_real = t < lengths[:, None]
    scored = is_real & (t >= 1)
    assert (scores[~scored] == 0).all(), "an unscored position has a score"
    assert scores[scored].isfinite().all(), "a score is not finite"
    assert (scores[scored] != 0).any(), "no position has a score"


def law_padding_is_ignored(model: LanguageModel):
    """Neither the content nor the amount of padding changes the scores."""
    obey(model, "pads")


def law_rows_are_independent(model: LanguageModel):
    """Neither the other sequences of a batch nor their order nor their number change the scores."""
    obey(model, "mates")


def law_posterior_is_a_distribution(model: LanguageModel):
    """If the model has a discrete latent, its posterior sums to one over the latent's values."""
    if not model.latent:
        return
    model.eval()
    tokens, lengths = batch(model.task)
    longest = model.task.length
    posterior = model.posterior(tokens, lengths).detach()
    shape = (len(tokens), posterior.shape[1], longest - 1)
    assert posterior.shape == shape, f"posterior: {posterior.shape}, not {shape}"
    assert (posterior >= 0).all(), "a posterior probability is negative"
    is_full = lengths == longest
    # A posterior of a shorter sequence has columns of pads.
    total = posterior.sum(1)[is_full]
    assert_close(total, torch.ones_like(total), CLOSE, f"posterior over {model.latent}")


def law_every_parameter_learns(model: LanguageModel):
    """Each parameter gets a finite gradient that is not zero, at the start or near it.

    A weight that starts at zero lets no gradient pass to what it multiplies. In float64, a gradient
    that is zero up to rounding is below `FINE`.
    """
    if model.closed_form:
        return
    # At the start a zero hides what it multiplies, near it no weight is zero: one of both suffices.
    unmoved = set(dict(model.named_parameters()))
    tokens, lengths = batch(model.task, count=16)
    at_start = copy.deepcopy(model).double()
    for near in (at_start, disturbed(model)):
        near.train()
        with seeded(0):
            training_loss(near, tokens, lengths).backward()
        for name, parameter in near.named_parameters():
            if not parameter.requires_grad:
                unmoved.discard(name)
                continue
            gradient = parameter.grad
            assert gradient is not None, f"{name} gets no gradient"
            assert gradient.isfinite().all(), f"{name}: gradient is not finite"
            if gradient.abs().max() > FINE:
                unmoved.discard(name)
        if not unmoved:
            return
    raise AssertionError(f"{', '.join(sorted(unmoved))}: a gradient of zero")


def law_overfits_one_sequence(model: LanguageModel):
    """Training covers 90 % of the distance to the entropy of the sequence's token frequencies.

    Only context can lower the loss further, and not every model of the zoo reads context. Two
    ordinary tokens alternate, because a model may know that nothing follows an end token.
    """
    steps = 20
    share = 0.9
    # Two words that alternate: the next one follows from the last.
    task = dataclasses.replace(model.task, vocab=UNKNOWN + 3)
    model = new_model(model, seed=0, task=task).train()
    last = task.vocab - 1
    tokens = torch.full((1, task.length), last)
    tokens[:, 2::2] = last - 1
    tokens[:, 0] = START
    lengths = torch.tensor([task.length])
    targets = task.length - 1
    p = (task.length // 2) / targets
    # Some models know the number of each word, but not their order.
    entropy = -p * math.log(p) - (1 - p) * math.log(1 - p)
    if model.closed_form:
        model.fit_closed_form(tokens, lengths)
        last = loss(model, tokens, lengths).item()
        assert last < math.log(task.vocab), f"the fitted loss {last:.3f} is no better than chance"
        return
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    with seeded(0):
        first = loss(model, tokens, lengths).item()
        losses = []
        for _ in range(steps):
            optimizer.zero_grad()
            step_loss = loss(model, tokens, lengths)
            step_loss.backward()
            optimizer.step()
            losses.append(step_loss.item())
        # Noise in training may hide that the loss is low.
        final = loss(model.eval(), tokens, lengths).item()
        # At this rate the loss may jump once after it has reached 0: the best of five steps counts.
        losses.append(final)
        last = min(losses[-5:])
    # Where the first loss is below the entropy, the entropy itself is the distance.
    distance = max(first - entropy, entropy)
    assert last - entropy <= (1 - share) * distance, (
        f"{steps} steps take the loss from {first:.3f} to {last:.3f}, entropy {entropy:.3f}"
    )


def law_checkpoint_is_exact(model: LanguageModel):
    """A saved state dict that is loaded into another model gives the same bits."""
    other = new_model(model, seed=1)
    with tempfile.TemporaryDirectory() as folder:
        # Through a file, as runs do.
        path = Path(folder) / "weights.pt"
        torch.save(model.state_dict(), path)
        other.load_state_dict(torch.load(path, weights_only=True))
    tokens, lengths = batch(model.task)
    reloaded = log_prob(other, tokens, lengths)
    expected = log_prob(model, tokens, lengths)
    assert_close(reloaded, expected, 0, "reloaded scores")


def law_seed_decides_the_weights(model: LanguageModel):
    """Every weight is drawn by its module's reset_parameters, from the seed and nothing else."""
    weights = _weights(new_model(model, seed=0))
    others = _weights(new_model(model, seed=1))
    # Another state of the generator than for the first model.
    with seeded(11):
        before = torch.get_rng_state()
        repeated = _weights(new_model(model, seed=0))
        for name, weight in repeated.items():
            assert not weight.isnan().any(), f"no reset_parameters() draws {name}"
        assert _same(weights, repeated), "equal seeds give different weights"
        assert before.equal(torch.get_rng_state()), "building changes the global generator"
    if weights:
        assert not _same(weights, others), "different seeds give equal weights"


def law_config_survives_json(model: LanguageModel):
    """Config -> dict -> JSON -> dict -> config gives an equal config."""
    config = model.config
    text = json.dumps(to_dict(config), allow_nan=False)
    loaded = from_dict(type(config), json.loads(text))
    assert loaded == config, f"{config} is loaded as {loaded}"
    assert json.dumps(to_dict(loaded)) == text, "equal configs have different JSON"


def law_config_rejects_wrong_values(model: LanguageModel):
    """A wrong value in any field, and an unknown field, raise an error of one line."""
    fields = to_dict(model.config)
    # No field has this value: numbers, flags and names alike.
    wrong = "no such thing"
    unknown = ("no_such_field",)
    paths = list(_field_paths(fields))
    paths.append(unknown)
    for path in paths:
        changed = _replaced(fields, path, wrong)
        try:
            from_dict(type(model.config), changed)
        except UserError as error:
            message = str(error)
            if path != unknown:
                assert wrong in message, f"{path}: {message!r} does not name the value"
            assert any(part in message for part in path), f"{message!r} does not name {path[-1]}"
            # A message is one line of a log.
            assert "\n" not in message, f"more than one line: {message!r}"
        else:
            raise AssertionError(f"{'.'.join(path)} = {wrong!r} is accepted")


def law_computes_on_its_device(model: LanguageModel):
    """Scores and gradients are computed on the device of the weights, and only there.

    The device is torch's `meta`, which computes shapes only and raises if it meets another device.
    It cannot compute a shape that depends on data; the check of such a model ends there.
    """
    if model.closed_form:
        return
    device = torch.device("meta")
    # Only shapes are computed: a tensor made on another device is an error here.
    tokens, lengths = batch(model.task)
    source = default_source(model, len(tokens))
    model.to(device).train()
    with device:
        try:
            given = [tokens, lengths] + list(source)
            columns = [column.to(device) for column in given]
            objective = model.objective(*columns)
            objective.sum().backward()
        except NotImplementedError:
            # An operation has no meta version: nothing is shown.
            return
        except RuntimeError as error:
            if "item() cannot be called on meta" in str(error):
                return
            raise AssertionError(str(error)) from error
    for name, parameter in model.named_parameters():
        gradient = parameter.grad
        assert gradient is None or gradient.device == device, f"gradient of {name}"


def _weights(model: LanguageModel) -> dict[str, Tensor]:
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def _same(weights: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> bool:
    return all(weight.equal(others[name]) for name, weight in weights.items())


def _field_paths(fields: Fields) -> Iterator[Texts]:
    for key, value in fields.items():
        if isinstance(value, Mapping):
            for rest in _field_paths(value):
                yield (key,) + rest
        else:
            yield (key,)


def _replaced(fields: Fields, path: Texts, value: Any) -> FieldsDict:
    key = path[0]
    rest = path[1:]
    if rest:
        value = _replaced(fields[key], rest, value)
    return dict(fields) | {key: value}


def law_state_has_the_declared_size(model: LanguageModel):
    """`state_size` numbers are in the state of a sequence after every step that fills a window.

    None says that the state grows with every token.
    """
    tokens, _ = every_sequence(model.task)
    source = random_source(model, len(tokens))
    model.eval()
    state = model.begin(len(tokens), *source)
    sizes = []
    with torch.no_grad():
        for token in tokens[:, :-1].unbind(1):
            _, state = model.advance(state, token)
            size = 0
            for part in tree_leaves(state):
                if isinstance(part, Tensor):
                    size += part[0].numel()
            sizes.append(size)
    declared = model.state_size
    window = model.context_length
    found = f"state_size is {declared}; after each token the state has {sizes} numbers"
    if declared is None:
        assert sizes == sorted(set(sizes)), found
    else:
        first = 1
        if window is not None:
            # A window is full after that many tokens.
            first = min(window, len(sizes))
        assert max(sizes) <= declared, found
        filled = sizes[max(0, first - 1) :]
        assert set(filled) == {declared}, found


def law_unused_parameters_are_declared(model: LanguageModel):
    """`unused_parameters` entries of the parameters have no gradient, whatever the sequence."""
    if model.closed_form:
        return
    task = dataclasses.replace(model.task, length=WINDOW)
    model = new_model(model, 0, task)
    # All sequences: a parameter is unused if none of them reads it.
    tokens, lengths = every_sequence(task)
    source = random_source(model, len(tokens))
    used = {}
    for seed in range(DRAWS):
        drawn = new_model(model, seed).double().train()
        with seeded(seed):
            with torch.no_grad():
                for weight in drawn.parameters():
                    weight.add_(0.3 * torch.randn_like(weight))  # zeros hide other parameters
            objective = drawn.objective(tokens, lengths, *source)
            objective.sum().backward()
        for name, weight in drawn.named_parameters():
            moves = torch.zeros_like(weight, dtype=torch.bool)
            if weight.grad is not None:
                moves = weight.grad != 0
            # Used at any seed: a single draw may give a gradient of zero.
            used[name] = moves | used.get(name, moves)
    found = {name: int((~part).sum()) for name, part in used.items() if not part.all()}
    count = sum(found.values())
    declared = model.unused_parameters
    assert count == declared, f"unused_parameters is {declared}, but {count} are unused: {found}"
