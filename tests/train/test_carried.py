"""Training and evaluation with carried state: losses, resuming, refusals."""

import dataclasses
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

import lmzoo
from lmzoo import Point, Study, main, zoo
from lmzoo.base.config import to_dict
from lmzoo.contract import START
from lmzoo.data.blocks import Blocks, block_sizes, scored_text, stream_batches
from lmzoo.data.corpus import Corpus, open_corpus
from lmzoo.lab.store.records import RunFolder
from lmzoo.lab.sweep.fleet.packing import Packer
from lmzoo.models.recurrent_lm import RecurrentLM
from lmzoo.train import carried
from lmzoo.train.carried import CarriedObjective, evaluate_carried
from lmzoo.train.evaluate import evaluate
from lmzoo.train.recipe import Recipe
from lmzoo.train.run import Run
from lmzoo.train.run_config import run_config
from lmzoo.train.trainer import Training, fit
from lmzoo.trainables.resolve import resolve
from tests.cli.run_lmzoo import run_lmzoo
from tests.user_errors import raises_user_error

RECIPE = Recipe(batch=8, lr=3e-2, carry_state=True)
CELLS: list[dict[str, Any]] = [
    {"cell": "lstm", "num_layers": 2},
    {"cell": "mgu", "starts": 2, "emission": {"name": "mixture", "components": 3}},
]


@pytest.fixture
def spec(tmp_path) -> dict[str, Any]:
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{'abcdef'[i % 5 :]}\n" for i in range(300)))
    return {"name": "stream", "path": str(path), "block": 7, "stride": 3}


@pytest.fixture
def corpus(spec) -> Corpus:
    return open_corpus(spec)


def build(corpus: Corpus, cls: type[RecurrentLM] = RecurrentLM, **fields: Any) -> RecurrentLM:
    config = zoo.config("recurrent_lm", width=8, **(fields or CELLS[0]))
    torch.manual_seed(0)
    return cls(config, corpus.task).double()


def one_pass(model: RecurrentLM, text: Tensor) -> Tensor:
    """Return log P of each token of the texts (B, n), scored as one sequence each."""
    tokens = torch.nn.functional.pad(text, (1, 0), value=START).long()
    with torch.no_grad():
        return model.eval().log_prob(tokens, torch.full((len(text),), tokens.shape[1]))[:, 1:]


class Resets(RecurrentLM):
    """The planted fault: every block starts from the initial state."""

    def score_block(self, tokens: Tensor, state: Any = None) -> Any:
        return super().score_block(tokens, None)


def evaluation_error(model: RecurrentLM, corpus: Corpus) -> float:
    """Return the difference to the loss of the whole split in one pass, in nats per token."""
    whole = -one_pass(model, scored_text(corpus.valid)[None]).mean()
    return abs(evaluate_carried(model, corpus.valid).token - float(whole))


@pytest.mark.parametrize("fields", CELLS)
@pytest.mark.parametrize("chunk", [1, 7, 1024])
def test_evaluation_is_one_pass_over_the_split(corpus, monkeypatch, fields, chunk) -> None:
    monkeypatch.setattr(carried, "CHUNK", chunk)
    model = build(corpus, **fields)
    assert evaluation_error(model, corpus) < 1e-10
    losses = evaluate_carried(model, corpus.valid)
    windows = evaluate(model, corpus.valid)
    assert losses.tokens == windows.tokens
    assert losses.nll.shape == windows.nll.shape
    assert float(losses.nll.sum()) == pytest.approx(losses.token * losses.tokens)
    assert losses.token != windows.token


def test_a_state_that_is_lost_changes_the_evaluation(corpus, monkeypatch) -> None:
    monkeypatch.setattr(carried, "CHUNK", 7)
    assert evaluation_error(build(corpus, Resets), corpus) > 1e-4


def training_error(model: RecurrentLM, corpus: Corpus) -> float:
    """Return the largest difference of a training score to that of its stream in one pass."""
    assert isinstance(corpus.train, Blocks)
    objective, scores, text = CarriedObjective(model.train()), [], []
    objective.begin_epoch()
    sizes = block_sizes(corpus.train, 8, random=True, seed=0, epoch=0)
    for batch in stream_batches(corpus.train, 8, sizes, seed=0, epoch=0):
        scores.append(objective(batch.tokens, batch.lengths)[:, 1:].detach())
        text.append(batch.tokens[:, 1:])
    whole = one_pass(model, torch.cat(text, dim=1))
    return float((torch.cat(scores, dim=1) - whole).abs().max())


@pytest.mark.parametrize("fields", CELLS)
def test_training_scores_the_streams_as_one_pass(corpus, fields) -> None:
    assert training_error(build(corpus, **fields), corpus) < 1e-10
    assert training_error(build(corpus, Resets, **fields), corpus) > 1e-4


def test_every_epoch_starts_from_the_initial_state(corpus) -> None:
    objective = CarriedObjective(build(corpus))
    tokens, lengths = corpus.valid.tokens[:3], torch.full((3,), corpus.valid.ids.shape[1])
    first = objective(tokens, lengths)
    assert not objective(tokens, lengths).equal(first)
    objective.begin_epoch()
    assert objective(tokens, lengths).equal(first)


def training(corpus: Corpus, seed: int = 0, recipe: Recipe = RECIPE) -> Training:
    return Training(zoo.build(zoo.config("lstm_lm", width=8), corpus.task, seed), recipe, seed)


def test_a_model_learns_and_the_record_counts_the_tokens(corpus) -> None:
    run = training(corpus)
    records = list(fit(run, corpus, 3))
    assert records[-1]["valid_token"] < records[0]["valid_token"] - 0.1
    assert isinstance(corpus.train, Blocks)
    assert corpus.train.stream is not None
    steps = len(corpus.train.stream) // (8 * 8)
    assert run.steps == 3 * steps
    seconds, rate = records[-1]["seconds"], records[-1]["tokens_per_second"]
    assert seconds * rate == pytest.approx(steps * 64, rel=0.02)
    assert records[-1]["valid_token"] == evaluate_carried(run.model, corpus.valid).token


def test_the_state_reaches_beyond_a_block(tmp_path) -> None:
    """Every fifth character is b: a window of three characters does not show where it is next."""
    path = tmp_path / "fifth.txt"
    path.write_text("aaaab" * 2000)
    corpus = open_corpus({"name": "stream", "path": str(path), "block": 2})
    losses = []
    for carry in (True, False):
        run = training(corpus, recipe=dataclasses.replace(RECIPE, carry_state=carry, batch=32))
        losses.append(list(fit(run, corpus, 3))[-1]["valid_token"])
    assert losses[0] < 0.1 < 0.2 < losses[1]


def test_an_interrupted_run_continues_exactly(corpus, tmp_path) -> None:
    facts = run_config(zoo.config("lstm_lm", width=8), RECIPE, corpus, {"name": "stream"}, 0)
    outcomes = []
    for name, budgets in (("whole", [3]), ("parts", [1, 3])):
        for budget in budgets:
            run = Run(RunFolder(tmp_path / name), facts, corpus)
            list(run.train(budget))
            test = run.test()
            run.close()
        outcomes.append((run.training.model.state_dict(), test))
    (weights, test), (others, other_test) = outcomes
    assert all(value.equal(others[key]) for key, value in weights.items())
    assert test.nll.equal(other_test.nll)
    model = run.training.model
    model.load_state_dict(run.training.best_weights)
    assert test.token == evaluate_carried(model, corpus.test).token


def test_steps_are_not_replayed(corpus, fake_recorder) -> None:
    run = training(corpus)
    list(fit(run, corpus, 2))
    assert run.step is not None
    assert not run.step.stepper.replays


def test_python_interface(spec, corpus, tmp_path) -> None:
    model = lmzoo.build("lstm_lm", corpus, recipe=to_dict(RECIPE), width=8)
    model.fit(1)
    assert model.test().token == evaluate_carried(model.module, corpus.test).token
    facts = run_config(zoo.config("lstm_lm", width=8), RECIPE, corpus, spec, 0)
    run = Run(RunFolder(tmp_path / "run"), facts, corpus)
    list(run.train(1))
    tested = run.test()
    run.close()
    assert lmzoo.load_run(tmp_path / "run").test().token == pytest.approx(tested.token)


REFUSALS: list[tuple[str, dict[str, Any], str, str]] = [
    ("modern_decoder", {}, "recipe.batch=8", "no state of constant size"),
    ("hmm", {}, "recipe.batch=8", "no state of constant size"),
    ("lstm_lm", {"name": "captions"}, "recipe.batch=8", "captions is not one contiguous text"),
    ("lstm_lm", {"blocks": 5}, "recipe.batch=8", "corpus.blocks=5 draws blocks at random"),
    ("lstm_lm", {}, "recipe.batch=5000", "recipe.batch=5000 parallel streams of 8"),
]


@pytest.mark.parametrize(("row", "fields", "batch", "message"), REFUSALS)
def test_what_cannot_be_carried_is_refused_in_one_line(
    spec, tmp_path, monkeypatch, capsys, row, fields, batch, message
) -> None:
    fields = {**spec, **fields}
    if fields["name"] == "captions":
        fields = {"name": "captions"}
    corpus = open_corpus(fields)
    recipe = Recipe(batch=int(batch.partition("=")[2]), carry_state=True)
    model = zoo.build(zoo.config(row), corpus.task)
    with raises_user_error(message):
        next(fit(Training(model, recipe, 0), corpus, 1))
    options = ["--set", "recipe.carry_state=true", "--set", batch]
    kind, *others = fields.items()
    options += ["--corpus", kind[1]]
    options += [part for key, value in others for part in ("--set", f"corpus.{key}={value}")]
    assert run_lmzoo("train", row, *options, "--out", str(tmp_path / "runs")) == 2
    assert message in capsys.readouterr().err
    study = Study(name="carry", question="?", points=(Point("one", row),))
    command = ["study", "--dry-run", "--out", str(tmp_path / "runs"), *options]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as stop:
        main(study)
    assert stop.value.code == 2
    *_, line = capsys.readouterr().err.splitlines()  # after what the text is
    assert message in line
    assert not (tmp_path / "runs").exists()


def test_a_study_trains_such_runs_alone_and_keeps_its_count_baselines(spec, corpus) -> None:
    fields = {"recipe.carry_state": True, "recipe.batch": 8, "model.width": 8}
    study = Study(name="s", question="?", points=(Point("lstm", "lstm_lm"),), fields=fields)
    points = resolve(study, corpus, spec)
    assert [point.recipe.carry_state for point in points] == [True] * len(points)
    assert sum(point.baseline for point in points) > 0
    planned = type("Planned", (), {"id": "a", "config": points[0].run_config({}, 0)})()
    assert Packer(corpus, None).max_members(planned) == 1
    alone = dataclasses.replace(study, fields={**fields, "recipe.carry_state": False})
    planned.config = resolve(alone, corpus, spec)[0].run_config({}, 0)
    assert Packer(corpus, None).max_members(planned) > 1
