"""Computing once per distinct token equals computing per position, gradients included."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lmzoo.blocks import unique
from lmzoo.blocks.unique import embed_unique, unique_rows
from lmzoo.laws.tiny import assert_close, log_prob, loss
from lmzoo.train.pack_recorder import _is_integer_index
from tests.cases import parametrize, rows
from tests.tiny import CLOSE, assert_equal_single, batch, tiny

VOCAB = 30
WAITS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
MODELS = rows("blocks/cases.toml", "models")
"""Models that compute once per distinct token."""


def repeated_batch(model, copies):
    tokens, lengths = batch(model.task)
    return tokens.repeat(copies, 1), lengths.repeat(copies)


def gradients(model, copies):
    """Return the gradients of the mean loss of a batch that is repeated `copies` times."""
    tokens, lengths = repeated_batch(model, copies)
    model.zero_grad()
    loss(model, tokens, lengths).backward()
    found = {}
    for name, weight in model.named_parameters():
        if weight.grad is not None:
            found[name] = weight.grad.clone()
    return found


def test_unique_rows_returns_first_indices_and_values():
    pairs = [[3, 1], [0, 1], [3, 1], [1, 3], [0, 1]]
    windows = torch.tensor(pairs)
    first, index = unique_rows(windows)
    places = first.tolist()
    assert sorted(places) == [0, 1, 3]
    values = windows[first]
    assert values[index].equal(windows)


def test_under_vmap_no_shape_depends_on_the_tokens():
    """Results are the same, although they are computed per position."""
    table = torch.randn(VOCAB, 3)
    tokens = torch.randint(VOCAB, (2, 4, 20))

    def squares(tokens):
        x, at = embed_unique(table, tokens)
        first, index = unique_rows(tokens)
        # The indices are computed, and change nothing.
        nothing = 0 * first[index]
        squared = at(x.square())
        return squared + nothing[:, None, None]

    for batches in (tokens, tokens[:, :, :5]):
        actual = torch.vmap(squares)(batches)
        expected = table[batches].square()
        assert actual.equal(expected)


OBJECTIVES = MODELS + ["nce", "word2vec_cbow"]


@parametrize("name", OBJECTIVES)
def test_on_a_gpu_no_objective_waits_for_values(name, monkeypatch):
    """A step that waits for the host cannot be recorded."""
    monkeypatch.setattr(unique, "needs_fixed_shapes", lambda _: True)
    model = tiny(name, vocab=VOCAB, length=5).train()
    found = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            # Operations whose result has a size or a value that the host reads.
            waits = WAITS & set(func.tags)
            if waits and not _is_integer_index(func, args):
                found.append(str(func))
            return func(*args, **(kwargs or {}))

    tokens, lengths = batch(model.task)
    with Watch():
        model.objective(tokens, lengths)
    assert not found


@parametrize("name", MODELS)
def test_a_repeated_batch_has_the_same_scores_and_gradients(name):
    """Ten copies of a batch have the same distinct tokens, but more positions than V."""
    model = tiny(name, vocab=VOCAB, length=5)
    tokens, lengths = batch(model.task)
    expected = log_prob(model, tokens, lengths).repeat(10, 1)
    tokens, lengths = repeated_batch(model, 10)
    scores = log_prob(model, tokens, lengths)
    assert_equal_single(scores, expected)
    single = gradients(model, 1)
    repeated = gradients(model, 10)
    for parameter, gradient in single.items():
        assert_close(repeated[parameter], gradient, CLOSE, f"gradient of {parameter}")
