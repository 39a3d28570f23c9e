"""word2vec: objective, optimum, and degeneration without noise."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from lmzoo.contract import START
from lmzoo.functional.token_scores import scored_mask
from tests.laws.support import assert_close, log_prob, next_log_prob
from tests.models.equivalence import set_weights
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


def test_skip_gram_optimum_is_the_shifted_pmi() -> None:
    """With full rank and all pairs in the data, c_x · w_y = log P(x, y) / (k q(x) P(y))."""
    words, k = range(2, VOCAB), 3
    tokens = torch.tensor([[START, a, b] for a, b in itertools.product(words, words)])
    repeats = torch.tensor([4, 1, 2, 1, 5, 3, 2, 6, 1])
    tokens = tokens.repeat_interleave(repeats, dim=0)
    lengths = torch.full((len(tokens),), 3)
    joint = torch.zeros(VOCAB, VOCAB, dtype=torch.float64)  # context, word
    for row in tokens:
        for t, contexts in pairs(3, 1):
            for j in contexts:
                joint[row[j], row[t]] += 1
    contexts, joint = joint.sum(1), joint / joint.sum()
    model = tiny(
        "word2vec_skipgram", vocab=VOCAB, length=3, width=VOCAB, window=1, negatives=k,
        noise_exponent=1.0,
    ).double().eval()  # fmt: skip
    # Unigram noise of the contexts; the large factor makes the added count of 1 negligible.
    model.noise.counts.copy_(contexts * 10**9)
    optimiser = torch.optim.LBFGS(
        model.parameters(), max_iter=80, tolerance_grad=1e-12, tolerance_change=0,
        line_search_fn="strong_wolfe",
    )  # fmt: skip

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = -model.log_prob(tokens, lengths).mean()
        loss.backward()
        return loss

    optimiser.step(closure)
    actual = (model.context.weight @ model.word.weight.T).detach()
    occurs = joint > 0
    pmi = (joint / (joint.sum(1, keepdim=True) * joint.sum(0))).log()
    expected = (pmi - torch.tensor(k).log())[occurs]
    assert occurs.sum() >= 12
    assert expected.std() > 0.3  # the table is not nearly constant
    assert_close(actual[occurs], expected, 1e-3, "c · w")


@BOTH
def test_without_noise_longer_equal_vectors_are_always_better(name: str) -> None:
    tokens, lengths = batch(tiny(name, length=6).task)
    losses: dict[int, list[float]] = {0: [], 5: []}
    for negatives, longer in itertools.product(losses, (1.0, 3.0, 9.0)):
        model = tiny(name, length=6, negatives=negatives)
        set_weights(model, {"word.weight": longer, "context.weight": longer})
        losses[negatives].append(-log_prob(model, tokens, lengths).sum().item())
    assert losses[0][0] > losses[0][1] >= losses[0][2]
    assert losses[0][2] < 1e-6
    assert losses[5][0] < losses[5][1] < losses[5][2]


@BOTH
def test_max_norm_bounds_inner_products(name: str) -> None:
    model = vectors(name, max_norm=0.5)
    tokens, lengths = batch(model.task)
    windows = model.windows(tokens, lengths)
    assert windows.inner_products().abs().max() <= 0.25 + 1e-6
    long = model.word.weight.norm(dim=-1) > 0.5
    assert long.any()
    assert_close(windows.w[long].norm(dim=-1), torch.full((int(long.sum()),), 0.5), CLOSE, "norms")
    short = model.word.weight.detach() * 0.01
    set_weights(model, {"word.weight": short})
    assert_close(model.windows(tokens, lengths).w, short, 0, "short vectors")


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


def test_one_context_equals_its_mean() -> None:
    """In sequences of one word, `<start>` is the only context."""
    first, mean = vectors("word2vec_cbow", length=2), vectors("word2vec_cbow", length=2, mean=True)
    tokens, lengths = batch(first.task)
    assert_close(log_prob(first, tokens, lengths), log_prob(mean, tokens, lengths), CLOSE, "scores")


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
