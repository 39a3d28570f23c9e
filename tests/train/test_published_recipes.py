"""SGD with decay and averaging, and the named recipes of papers."""

import dataclasses
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from lmzoo import zoo
from lmzoo.base.config import from_dict
from lmzoo.base.errors import UserError
from lmzoo.base.seeds import derive_seed
from lmzoo.contract import Task
from lmzoo.data.blocks import stream_batches
from lmzoo.data.corpus import open_corpus
from lmzoo.models.recurrent import recurrent_lm
from lmzoo.train.evaluate import evaluate
from lmzoo.train.packed.compatibility import example_batch, reason_not_packable
from lmzoo.train.recipe import PUBLISHED, RECIPES, Recipe
from lmzoo.train.trainer import Training, fit
from tests.cli.run_lmzoo import run_lmzoo
from tests.data.published_files import write_unpacked
from tests.tiny import quick

AVERAGED = Recipe(optimiser="asgd", batch=16, lr=1.0, nonmono=0)
LOSSES = st.lists(st.sampled_from([1.0, 2.0, 3.0, 4.0, math.inf]), max_size=9)


def trigger_of_awd_lstm(losses: list[float], nonmono: int) -> bool:
    """The loop of the published `main.py`."""
    averaging, known = False, []
    for loss in losses:
        if not averaging and len(known) > nonmono and loss > min(known[: len(known) - nonmono]):
            averaging = True
        known.append(loss)
    return averaging


@quick
@given(losses=LOSSES, nonmono=st.integers(0, 4))
def test_the_trigger_is_that_of_awd_lstm(losses: list[float], nonmono: int) -> None:
    recipe = Recipe(optimiser="asgd", nonmono=nonmono)
    assert recipe.averages(losses) == trigger_of_awd_lstm(losses, nonmono)


@quick
@given(losses=LOSSES)
def test_the_rate_decays_after_each_epoch_that_is_no_record(losses: list[float]) -> None:
    best, rate = math.inf, 1.0
    for loss in losses:  # as in PyTorch's word_language_model
        rate, best = (rate, loss) if loss < best else (rate / 4, best)
    recipe = Recipe(lr=1.0, schedule="plateau", decay=0.25)
    assert recipe.learning_rate(1, 1, losses) == rate


def test_zaremba_halves_the_rate_after_four_epochs() -> None:
    rates = [RECIPES["zaremba_small"].learning_rate(7 * e + 7, 7) for e in range(7)]
    assert rates == [20, 20, 20, 20, 10, 5, 2.5]


def small(corpus, **fields):
    fields = {"cell": "lstm", "emission": "vector", "norm": "none", "width": 4, **fields}
    return zoo.build(zoo.config("recurrent_lm", **fields), corpus.task, 0)


def test_averages_are_the_means_of_the_weights_after_each_step(corpus) -> None:
    training = Training(small(corpus), AVERAGED, seed=0)
    training.losses = [1.0, 2.0]  # the trigger
    steps, optimiser = [], training.optimiser
    assert optimiser is not None
    step = optimiser.step
    optimiser.step = lambda: (
        step(),
        steps.append([p.clone() for p in training.model.parameters()]),
    )
    (record,) = fit(training, corpus, 1)
    means = [torch.stack(each).mean(0) for each in zip(*steps, strict=True)]
    for mean, best in zip(means, training.best_weights.values(), strict=True):
        torch.testing.assert_close(best, mean.detach(), atol=1e-6, rtol=0)
    assert training.average.count == len(steps) > 1
    for weight, last in zip(training.model.parameters(), steps[-1], strict=True):
        assert torch.equal(weight, last)  # training goes on from the last step, not from the mean
    training.model.load_state_dict(training.best_weights)
    assert evaluate(training.model, corpus.valid).token == record["valid_token"]


@pytest.mark.parametrize("split", [1, 3])
def test_a_resumed_averaging_training_is_equal_bit_by_bit(corpus, tmp_path, split) -> None:
    recipe = Recipe(optimiser="asgd", batch=16, lr=30.0, clip=0.25, nonmono=0, schedule="plateau")
    whole, first, second = (Training(small(corpus), recipe, seed=1) for _ in range(3))
    list(fit(whole, corpus, 5))
    assert whole.average.count, "the trigger must be reached"
    list(fit(first, corpus, split))
    torch.save(first.dump(), tmp_path / "state.pt")
    second.load(torch.load(tmp_path / "state.pt", weights_only=True))
    list(fit(second, corpus, 5))
    assert second.losses == whole.losses
    assert all(torch.equal(a, b) for a, b in zip(
        second.best_weights.values(), whole.best_weights.values(), strict=True
    ))  # fmt: skip


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("tied", [True, False])
def test_hidden_size_head_and_bias_are_those_of_torch(cell: str, tied: bool) -> None:  # noqa: FBT001
    vocab, embedded, hidden = 11, 4, 7
    fields = {"width": embedded, "hidden": hidden, "num_layers": 2, "tied": tied}
    fields |= {"cell": cell, "emission": "vector", "norm": "none", "head_bias": True}
    config = zoo.config("recurrent_lm", start="zeros", **fields)
    model = zoo.build(config, Task(vocab=vocab, length=9), init="uniform_0.1")
    with torch.no_grad():
        model.head_bias.uniform_()
    last = embedded if tied else hidden
    kinds = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}
    layers = [kinds[cell](embedded, hidden), kinds[cell](hidden, last)]
    for layer, own in zip(layers, [model.cell, *model.upper], strict=True):
        layer.load_state_dict({f"{name}_l0": w for name, w in own.w.named_parameters()})
    tokens = torch.randint(vocab, (3, 9))
    h = model.embedding(tokens[:, :-1]).movedim(1, 0)
    for layer in layers:
        h = layer(h)[0]
    table = model.embedding.weight if tied else model.head.weight
    dense = torch.log_softmax(h.movedim(0, 1) @ table.T + model.head_bias, -1)
    expected = dense.gather(-1, tokens[:, 1:, None])[..., 0]
    lengths = torch.full((3,), 9)
    torch.testing.assert_close(model.log_prob(tokens, lengths)[:, 1:], expected)
    torch.testing.assert_close(model.next_log_prob(tokens[:, :-1]), dense[:, -1])
    state, out = model.begin(3), None
    for token in tokens[:, :-1].unbind(1):
        out, state = model.advance(state, token)
    torch.testing.assert_close(out, dense[:, -1])


def test_a_head_of_other_width_or_cell_is_refused() -> None:
    with pytest.raises(UserError, match="hidden=7: the only cell of a tied model"):
        zoo.config("lstm_lm", hidden=7)
    with pytest.raises(UserError, match="the cell mgu has inputs and a state of one width"):
        zoo.build(zoo.config("recurrent_lm", cell="mgu", hidden=7, tied=False), Task(5, 4))
    with pytest.raises(UserError, match="head_bias=true needs emission=vector"):
        zoo.config("recurrent_lm", head_bias=True)


MASK = torch.tensor([2.0, 0.0, 2.0, 2.0])
AWD = RECIPES["awd_lstm"]


def published_epoch(training: Training, corpus) -> list[torch.Tensor]:
    """Train for one epoch by the loop of the published `main.py` and return the weights."""
    own, streams, bptt = training.model, training.recipe.batch, corpus.train.size
    rnns = [nn.LSTM(4, 6), nn.LSTM(6, 4)]
    for rnn, cell in zip(rnns, [own.cell, *own.upper], strict=True):
        rnn.load_state_dict({f"{name}_l0": w for name, w in cell.w.named_parameters()})
    table, bias = (nn.Parameter(w.detach().clone()) for w in (own.embedding.weight, own.head_bias))
    params = [bias, table, *(w for rnn in rnns for w in rnn.parameters())]
    optimiser = torch.optim.SGD(params, lr=AWD.lr, weight_decay=AWD.weight_decay)
    count = len(corpus.train.stream) // (streams * bptt) * bptt
    (tokens,) = (b.tokens for b in stream_batches(corpus.train, streams, [count], seed=0, epoch=0))
    data, hidden, i = tokens.T, [None, None], 0
    noise = torch.Generator().manual_seed(derive_seed(0, "block sizes", 0))
    while i < count:
        mean = bptt if torch.rand((), generator=noise) < 0.95 else bptt / 2.0
        length = max(5, int(torch.normal(mean, 5.0, (1,), generator=noise)))
        length = min(length, count - i)
        hidden = [h and tuple(x.detach() for x in h) for h in hidden]
        optimiser.param_groups[0]["lr"] = AWD.lr * length / bptt
        output = table[data[i : i + length]]
        for layer, rnn in enumerate(rnns):
            output, hidden[layer] = rnn(output, hidden[layer])
        dropped = output * MASK
        logits = dropped @ table.T + bias
        targets = data[i + 1 : i + 1 + length]
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss = loss + 2 * dropped.pow(2).mean()
        loss = loss + (output[1:] - output[:-1]).pow(2).mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, AWD.clip)
        optimiser.step()
        i += length
    return [w.detach() for w in params]


def test_an_epoch_of_awd_lstm_is_that_of_the_published_code(tmp_path, monkeypatch) -> None:
    """Random lengths, their rates, AR and TAR."""
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{'abcdef'[i % 5 :]}\n" for i in range(400)))
    text = open_corpus({"name": "stream", "path": str(path), "block": 19})
    monkeypatch.setattr(recurrent_lm, "drop_features", lambda x, rate: x * MASK)
    model = {**PUBLISHED["awd_lstm"]["model"], "width": 4, "hidden": 6, "num_layers": 2}
    model |= {k: 0.0 for k in model if k.startswith("dropout")} | {"dropout_output": 0.4}
    fields = {**model, "dropout_layers": None, "cell": "lstm"}
    training = Training(
        zoo.build(zoo.config("recurrent_lm", **fields), text.task, 0),
        dataclasses.replace(AWD, batch=8),
        seed=0,
    )
    expected = published_epoch(training, text)
    list(fit(training, text, 1))
    own = training.model
    found = [own.head_bias, own.embedding.weight]
    found += [w for cell in (own.cell, *own.upper) for w in cell.w.parameters()]
    error = max(float((a.detach() - b).abs().max()) for a, b in zip(found, expected, strict=True))
    assert error < 2e-4


def test_penalties_are_in_the_objective_only_and_in_packs(corpus) -> None:
    plain = small(corpus)
    model = small(corpus, penalty_activation=2.0, penalty_slowness=1.0)
    model.load_state_dict(plain.state_dict())
    assert reason_not_packable(model) == ""
    batch = example_batch(corpus.task, 3, corpus.task.length, conditional=False)
    for mode in (True, False):
        assert torch.equal(model.train(mode).log_prob(*batch), plain.train(mode).log_prob(*batch))
    y = model._outputs(batch[0][:, :-1])[0]
    ends = batch[1] - 1
    expected = sum(
        n
        * (2 * y[b, :n].square().mean() + (y[b, 1:n] - y[b, : n - 1]).square().mean().nan_to_num())
        for b, n in enumerate(ends.tolist())
    )
    found = plain.train().objective(*batch).sum() - model.train().objective(*batch).sum()
    torch.testing.assert_close(found, expected)


def test_random_blocks_are_refused_where_they_cannot_be() -> None:
    with pytest.raises(UserError, match="needs carry_state=true"):
        from_dict(Recipe, {"random_blocks": True})
    with pytest.raises(UserError, match="set schedule to constant or plateau"):
        from_dict(Recipe, {"random_blocks": True, "carry_state": True, "schedule": "step"})


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_recipe_trains_on_the_penn_treebank(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command of the page of texts, at small sizes; a second one continues the run."""
    write_unpacked(tmp_path, "ptb")
    small = ["model.width=4", "recipe.batch=4", "corpus.block=9"]
    small += ["model.hidden=6"] if name == "awd_lstm" else []
    options = [word for field in small for word in ("--set", field)]
    command = ["train", "lstm_lm", "--corpus", "ptb", "--data-dir", tmp_path, "--recipe", name]
    for epochs in (1, 2):
        assert run_lmzoo(*command, *options, "--epochs", epochs, "--out", tmp_path / "out") == 0
        assert "perplexity per word" in capsys.readouterr().out
    assert len(list((tmp_path / "out").glob("*/config.json"))) == 1
