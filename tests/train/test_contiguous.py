"""Training on contiguous text: losses of windows, packs, interruption."""

import pytest
import torch

from lmzoo import zoo
from lmzoo.data.corpus import Corpus, open_corpus
from lmzoo.laws_of_training.packing import assert_trainings_equal
from lmzoo.train.evaluate import evaluate
from lmzoo.train.kept_trainers import KeptTrainers
from lmzoo.train.recipe import Recipe
from lmzoo.train.trainer import Training, fit

RECIPE = Recipe(batch=8, lr=3e-2)


@pytest.fixture(params=[0, 30], ids=["pass", "random"])
def corpus(request, tmp_path) -> Corpus:
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{'abcdef'[i % 5 :]}\n" for i in range(300)))
    spec = {"name": "stream", "path": str(path), "block": 7, "stride": 3, "blocks": request.param}
    return open_corpus(spec)


def training(corpus: Corpus, seed: int = 0) -> Training:
    return Training(zoo.build(zoo.config("rnn_lm", width=8), corpus.task, seed), RECIPE, seed)


def test_the_loss_is_that_of_every_character_with_its_context(corpus):
    model = training(corpus).model.eval()
    stream, nats = corpus.test.tokens[corpus.test.scored], []
    for t in range(len(stream)):
        # Windows have 8 characters and move by 3; the last one ends with the text.
        end = min(8 if t < 8 else 8 + 3 * -(-(t - 7) // 3), len(stream))
        prefix = torch.cat([torch.tensor([1]), stream[end - 8 : t]])
        with torch.no_grad():
            nats.append(-float(model.next_log_prob(prefix[None])[0, stream[t]]))
    losses = evaluate(model, corpus.test)
    assert losses.tokens == len(stream)
    assert losses.token == pytest.approx(sum(nats) / len(nats), abs=1e-5)
    assert losses.accuracy is None


def test_a_pack_whose_members_are_at_different_epochs_trains_as_each_alone(corpus):
    alone = [training(corpus, seed) for seed in range(3)]
    packed = [training(corpus, seed) for seed in range(3)]
    for member in (*alone, *packed):
        list(fit(member, corpus, member.seed))  # member p is at epoch p
    for member in alone:
        list(fit(member, corpus, 4))
    for _ in KeptTrainers().fit(packed, corpus, 4):
        pass
    for ours, other in zip(packed, alone, strict=True):
        assert_trainings_equal(ours, other)
