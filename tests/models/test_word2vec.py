"""word2vec: objective, optimum, and degeneration without noise."""

from typing import Any

import pytest
import torch
from torch.nn.functional import logsigmoid

from lmzoo.contract import START
from lmzoo.functional.token_scores import scored_mask
from lmzoo.laws.support import assert_close, log_prob, next_log_prob
from tests.tiny import CLOSE, batch, tiny

BOTH = pytest.mark.parametrize("name", ["word2vec_skipgram", "word2vec_cbow"])
VOCAB = 5


def vectors(name: str, length: int = 6, **fields: Any) -> Any:
    """Return a model with large vectors and a noise distribution that is not uniform."""
    model = tiny(name, vocab=VOCAB, length=length, embedding_std=1.0, **fields)
    model.noise.counts.copy_(torch.tensor([0, 8, 2, 5, 1]))
    return model.eval()


def pairs(n: int, window: int) -> list[tuple[int, list[int]]]:
    """Return the position of each word with the positions of its contexts."""
    contexts = [(t, range(max(0, t - window), min(n, t + window + 1))) for t in range(1, n)]
    return [(t, [j for j in js if j != t]) for t, js in contexts]


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("word2vec_skipgram", {"window": 1}),
        ("word2vec_skipgram", {"window": 4, "negatives": 3}),
        ("word2vec_cbow", {"window": 2}),
        ("word2vec_cbow", {"window": 3, "mean": True, "negatives": 2}),
        ("word2vec_cbow", {"window": 2, "l2": 0.1, "max_norm": 0.7}),
    ],
)
def test_score_is_the_sum_over_pairs_plus_expected_noise(name: str, fields: dict[str, Any]) -> None:
    model = vectors(name, **fields)
    tokens, lengths = batch(model.task)
    actual = log_prob(model, tokens, lengths)
    config, q = model.config, model.noise.log_q(torch.zeros(())).exp()
    w, c = model.word.weight.detach(), model.context.weight.detach()
    if config.max_norm:
        w, c = ((x * (config.max_norm / x.norm(dim=-1, keepdim=True)).clamp_max(1)) for x in (w, c))
    for row, n in enumerate(lengths.tolist()):
        s = tokens[row]
        for t, contexts in pairs(n, config.window):
            vectors_c = [c[s[j]] for j in contexts]
            if getattr(config, "mean", False):
                vectors_c = [torch.stack(vectors_c).mean(0)]
            expected = torch.zeros(())
            for x in vectors_c:
                expected += logsigmoid(x @ w[s[t]])
                noise_scores = c @ w[s[t]] if name == "word2vec_skipgram" else w @ x
                expected += config.negatives * (q * logsigmoid(-noise_scores)).sum()
            for j in contexts:
                expected -= config.l2 / 2 * (c[s[j]].square().sum() + w[s[t]].square().sum())
            assert_close(actual[row, t], expected, CLOSE, f"score of word {t}")


@pytest.mark.parametrize("mean", [None, False, True])
def test_sampled_objective_has_the_score_as_expectation(*, mean: bool | None) -> None:
    draws = 1500
    fields = {} if mean is None else {"mean": mean}
    model = vectors("word2vec_skipgram" if mean is None else "word2vec_cbow", length=4, **fields)
    tokens, lengths = batch(model.task, count=2)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        many = model.objective(tokens.repeat(draws, 1), lengths.repeat(draws))
    many = many.unflatten(0, (draws, -1))
    difference = (many.mean(0) - log_prob(model, tokens, lengths)).abs()
    assert (difference <= 5 * many.std(0) / draws**0.5 + 1e-6).all()
    assert (many.std(0)[scored_mask(tokens, lengths)] > 0).all()


@BOTH
def test_l2_penalises_vector_lengths(name: str) -> None:
    free, dear = vectors(name), vectors(name, l2=0.01)
    tokens, lengths = batch(free.task)
    windows = free.windows(tokens, lengths)
    norms = windows.w[windows.words].square().sum(-1)[..., None] + windows.c[
        windows.contexts
    ].square().sum(-1)
    expected = -0.005 * (norms * windows.mask).sum(-1) * scored_mask(tokens, lengths)[:, 1:]
    difference = log_prob(dear, tokens, lengths) - log_prob(free, tokens, lengths)
    assert_close(difference[:, 1:], expected.detach(), CLOSE, "price")


def test_next_token_distribution_reads_the_window_before() -> None:
    for mean in (False, True):
        model = vectors("word2vec_cbow", window=2, mean=mean)
        prefix, _ = batch(model.task)
        vectors_c = model.context.weight[prefix[:, -2:]]
        pooled = vectors_c.mean(1) if mean else vectors_c.sum(1)
        expected = (pooled @ model.word.weight.T).log_softmax(-1).detach()
        assert_close(next_log_prob(model, prefix), expected, CLOSE, "next")


def test_noise_counts_contexts_for_skip_gram_and_words_for_cbow() -> None:
    """Skip-gram samples contexts, including `<start>`; CBOW samples words."""
    tokens, lengths = torch.tensor([[START, 3, 4, 0, 0, 0]]), torch.tensor([3])
    counts = {"word2vec_skipgram": [0, 1, 0, 1, 1], "word2vec_cbow": [0, 0, 0, 1, 1]}
    for name, expected in counts.items():
        model = tiny(name, vocab=VOCAB, length=6).train()
        model.objective(tokens, lengths)
        assert model.noise.counts.tolist() == expected
