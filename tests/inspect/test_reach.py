"""What a prediction reads: bags of words, n-grams and moving averages by construction."""

import itertools

import pytest
import torch

from lmzoo import zoo
from lmzoo.base.errors import UserError
from lmzoo.contract import LanguageModel, Task
from lmzoo.inspect.reach import reach
from tests.tiny import tiny

DRAWN = torch.randint(4, 40, (300, 9), generator=torch.Generator().manual_seed(0))
TOKENS = torch.cat([torch.ones(300, 1).long(), DRAWN], dim=1)


class Mean(LanguageModel):
    """Logits are a weighted sum of one-hot tokens, w_d for the token d steps back."""

    def __init__(self, weights: list[float]) -> None:
        super().__init__(None, Task(vocab=40, length=9))
        self.weights = torch.tensor(weights)

    def score_tokens(self, tokens: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def next_log_prob(self, prefix: torch.Tensor) -> torch.Tensor:
        hot = torch.nn.functional.one_hot(prefix[:, 1:], 40).float()
        return (hot.flip(1) * self.weights[: hot.shape[1], None]).sum(1).log_softmax(-1)


def found(weights: list[float]) -> tuple[list[float], float]:
    back, order = reach(Mean(weights), TOKENS)
    return (back / back[0]).tolist(), order


def test_a_bag_of_words_reads_all_tokens_alike_and_no_order() -> None:
    back, order = found([0.1] * 8)
    assert back == pytest.approx([1] * 8, rel=0.05)
    assert order < 1e-5


def test_an_n_gram_reads_nothing_further_back() -> None:
    back, order = found([1, 1, 0, 0, 0, 0, 0, 0])
    assert back[1] == pytest.approx(1, rel=0.05)
    assert max(back[2:]) < 1e-5
    assert order == pytest.approx(1, rel=0.25)


def test_a_moving_average_falls_by_one_factor_per_step() -> None:
    back, order = found([0.1 * 0.5**d for d in range(8)])
    ratios = [b / a for a, b in itertools.pairwise(back)]
    assert ratios == pytest.approx([0.5] * 7, rel=0.05)
    assert order > 0.5


@pytest.mark.parametrize(
    ("name", "fields", "reads"),
    [("markov_mlp", {"window": 3}, 3), ("rnn_lm", {}, 7), ("ngram_count", {"order": 1}, 0)],
)
def test_rows_read_what_their_equations_say(name: str, fields: dict, reads: int) -> None:
    model = tiny(name, length=8, **fields).double()
    tokens = torch.cat([torch.ones(60, 1).long(), torch.randint(0, 3, (60, 8))], dim=1)
    back, _ = reach(model, tokens)
    assert (back > 1e-12).tolist() == [d < reads for d in range(7)]


def test_a_model_that_does_not_predict_the_next_token_is_refused() -> None:
    model = zoo.build(zoo.config("masked_lm"), Task(vocab=40, length=9))
    with pytest.raises(UserError, match="masked_lm does not predict a next token"):
        reach(model, TOKENS)
