"""Models with another objective: masks, contrasts, word2vec, corrupted spans."""

import math
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from lmzoo import zoo
from lmzoo.base.errors import UserError
from lmzoo.contract import START, LanguageModel
from lmzoo.functional.token_scores import scored_mask
from lmzoo.laws.tiny import assert_close, log_prob, next_log_prob
from lmzoo.models.objective import contrastive_objective, mask_tokens
from lmzoo.models.span_corruption import corrupt, sample_spans, sample_spans_around, span_targets
from tests.cases import cases
from tests.models.equivalence import small
from tests.tiny import CLOSE, FINE, batch, every_sequence, tiny

VOCAB = 5


def masked(**fields: Any) -> Any:
    return small("masked_lm", **fields)


def assert_share(successes: Tensor, p: float, trials: int = 0) -> None:
    """Assert that a share is within five standard deviations of the binomial mean p."""
    deviation = math.sqrt(p * (1 - p) / (trials or len(successes)))
    assert abs(successes.double().mean().item() - p) <= 5 * deviation


def test_tokens_are_selected_hidden_and_swapped_with_the_given_probabilities():
    vocab = 1000
    tokens = torch.randint(vocab, (400, 100), generator=torch.Generator().manual_seed(0))
    words = torch.rand(tokens.shape, generator=torch.Generator().manual_seed(1)) < 0.7
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        actual = mask_tokens(tokens, words, vocab, select=0.15, hide=0.8, swap=0.1)
    assert not (actual.predicted & ~words).any()
    assert not (actual.hidden & ~actual.predicted).any()
    changed = actual.tokens != tokens
    assert not (changed & (actual.hidden | ~actual.predicted)).any()
    assert_share(actual.predicted[words], 0.15)
    assert_share(actual.hidden[actual.predicted], 0.8)
    # A random token equals the original one with probability 1/vocab.
    assert_share(changed[actual.predicted], 0.1 * (1 - 1 / vocab))
    assert_share(actual.tokens[changed] < vocab // 2, 0.5)


@pytest.mark.parametrize(("hide", "swap"), [(1.0, 0.0), (0.0, 0.0), (0.0, 1.0)])
def test_objective_is_the_score_of_the_corrupted_sentence(hide, swap):
    """All tokens are selected and all get the same treatment."""
    model = masked(select=1.0, hide=hide, swap=swap, dropout=0.0).eval()
    tokens, lengths = batch(model.task)
    mask = scored_mask(tokens, lengths)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(3)
        actual = model.objective(tokens, lengths)
        torch.manual_seed(3)
        how = mask_tokens(tokens, mask, model.task.vocab, select=1.0, hide=hide, swap=swap)
        y = model.encode(how.tokens, lengths, how.hidden)
        dense = model.emission.dense(y, model.embedding.weight)
    expected = dense.gather(-1, tokens[..., None])[..., 0] * mask
    assert_close(actual, expected, CLOSE, "objective")
    assert how.hidden.equal(mask & (hide == 1.0))
    assert (how.tokens == tokens).all() == (swap == 0.0)


def draws_with_mean(model: Any, tokens: Tensor, lengths: Tensor, mean: Tensor) -> Tensor:
    """Return draws of the objective, (draws, B, T); their mean is `mean` within five sigma."""
    draws = 1500
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        many = model.objective(tokens.repeat(draws, 1), lengths.repeat(draws))
    many = many.unflatten(0, (draws, -1))
    difference = (many.mean(0) - mean).abs()
    assert (difference <= 5 * many.std(0) / draws**0.5 + 1e-6).all()
    return many


def test_objective_equals_the_score_in_expectation():
    """Without attention the prediction of a token does not depend on the other tokens."""
    model = masked(select=0.25, hide=1.0, swap=0.0, dropout=0.0, layers=1).eval()
    with torch.no_grad():  # switch attention off
        model.blocks[0].attention.output.weight.zero_()
    tokens, lengths = batch(model.task, count=2)
    draws_with_mean(model, tokens, lengths, log_prob(model, tokens, lengths))


@pytest.mark.parametrize("emission", ["vector", "mixture"])
def test_score_hides_one_token_at_a_time(emission):
    model = masked(emission=emission).eval()
    tokens, lengths = batch(model.task)
    scores = log_prob(model, tokens, lengths)
    t = torch.arange(model.task.length)
    for u in range(1, model.task.length):
        with torch.no_grad():
            y = model.encode(tokens, lengths, (t == u).expand_as(tokens))
            dense = model.emission.dense(y[:, u], model.embedding.weight)
        expected = dense.gather(1, tokens[:, u : u + 1])[:, 0]
        mask = u < lengths
        assert_close(scores[mask, u], expected[mask], CLOSE, f"score at {u}")
        assert_close(dense.exp().sum(1), torch.ones(len(tokens)), CLOSE, "total")


def test_shares_that_exceed_one_are_refused():
    with pytest.raises(UserError, match=r"hide=0\.8 and swap=0\.3 exceed 1"):
        zoo.config("masked_lm", swap=0.3)


def expected_contrastive_objective(scores: Tensor, data: Tensor, noise: Tensor, k: int) -> Tensor:
    """Return Σ_w [ p̃(w) log σ(s_w) + k q(w) log σ(−s_w) ]."""
    return (data * logsigmoid(scores) + k * noise * logsigmoid(-scores)).sum(-1)


@pytest.mark.parametrize("k", [1, 2])
def test_the_mean_over_all_draws_is_the_published_sum_with_its_optimum_at_the_data(k):
    """Enumerate all draws of a data word and k noise words with their probabilities."""
    generator = torch.Generator().manual_seed(0)
    data, noise = torch.softmax(torch.randn(2, 7, generator=generator).double(), -1)
    u = (1.7 * torch.softmax(torch.randn(7, generator=generator).double(), -1)).requires_grad_()
    kq = k * noise
    words = torch.cartesian_prod(*[torch.arange(7)] * (k + 1))
    weights = data[words[:, 0]] * noise[words[:, 1:]].prod(1)
    s = (u / kq).log()
    mean = (weights * contrastive_objective(s[words[:, 0]], s[words[:, 1:]])).sum()
    expected = (data * (u / (kq + u)).log() + kq * (kq / (kq + u)).log()).sum()
    assert_close(mean.detach(), expected.detach(), FINE, "J")
    assert_close(
        mean.detach(), expected_contrastive_objective(s, data, noise, k).detach(), FINE, ""
    )
    (gradient,) = torch.autograd.grad(mean, u)
    assert_close(gradient * u.detach(), (kq / (kq + u) * (data - u)).detach(), FINE, "gradient")


@pytest.mark.parametrize("name", ["nce", "negative_sampling"])
def test_sampled_objective_has_the_exact_expectation(name):
    k = 3
    model = tiny(name, vocab=VOCAB, negatives=3).eval()
    tokens, lengths = batch(model.task, count=2)
    model.noise.update(torch.tensor([0, 1, 1, 2, 2, 2]), torch.ones(6, dtype=torch.bool))
    with torch.no_grad():
        q = model.noise.log_q(torch.zeros(())).exp()
        scores = model.unnormalised_scores(tokens[:, :-1])
        if name == "nce":
            scores = scores - (k * q).log()
        data = torch.nn.functional.one_hot(tokens[:, 1:], VOCAB).to(scores)
        exact = expected_contrastive_objective(scores, data, q, k)
    exact = torch.nn.functional.pad(exact, (1, 0)) * scored_mask(tokens, lengths)
    many = draws_with_mean(model, tokens, lengths, exact)
    assert (many.std(0)[exact != 0] > 0).all()


def test_only_training_counts_noise_tokens_and_only_scored_ones():
    model = tiny("nce", vocab=VOCAB)
    tokens, lengths = batch(model.task)
    model.eval().objective(tokens, lengths)
    assert not model.noise.counts.any()
    model.train().objective(tokens, lengths)
    expected = torch.bincount(tokens[scored_mask(tokens, lengths)], minlength=VOCAB)
    assert model.noise.counts.equal(expected)


def vectors(name: str, length: int = 6, **fields: Any) -> Any:
    """Return a model with large vectors and a noise distribution that is not uniform."""
    model = tiny(name, vocab=VOCAB, length=length, embedding_std=1.0, **fields)
    model.noise.counts.copy_(torch.tensor([0, 8, 2, 5, 1]))
    return model.eval()


def pairs(n: int, window: int) -> list[tuple[int, list[int]]]:
    """Return the position of each word with the positions of its contexts."""
    contexts = [(t, range(max(0, t - window), min(n, t + window + 1))) for t in range(1, n)]
    return [(t, [j for j in js if j != t]) for t, js in contexts]


@cases("models/cases.toml", "objectives", "name, fields")
def test_score_is_the_sum_over_pairs_plus_expected_noise(name, fields):
    model = vectors(name, **fields)
    tokens, lengths = batch(model.task)
    actual = log_prob(model, tokens, lengths)
    config = model.config
    q = model.noise.log_q(torch.zeros(())).exp()
    w = model.word.weight.detach()
    c = model.context.weight.detach()
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
                if name == "word2vec_skipgram":
                    noise_scores = c @ w[s[t]]
                else:
                    noise_scores = w @ x
                expected += config.negatives * (q * logsigmoid(-noise_scores)).sum()
            for j in contexts:
                expected -= config.l2 / 2 * (c[s[j]].square().sum() + w[s[t]].square().sum())
            assert_close(actual[row, t], expected, CLOSE, f"score of word {t}")


@pytest.mark.parametrize("mean", [None, False, True])
def test_sampled_objective_has_the_score_as_expectation(mean):
    fields = {"mean": mean}
    if mean is None:
        fields = {}
    model = vectors("word2vec_skipgram" if mean is None else "word2vec_cbow", length=4, **fields)
    tokens, lengths = batch(model.task, count=2)
    many = draws_with_mean(model, tokens, lengths, log_prob(model, tokens, lengths))
    assert (many.std(0)[scored_mask(tokens, lengths)] > 0).all()


def test_next_token_distribution_reads_the_window_before():
    for mean in (False, True):
        model = vectors("word2vec_cbow", window=2, mean=mean)
        prefix, _ = batch(model.task)
        vectors_c = model.context.weight[prefix[:, -2:]]
        if mean:
            pooled = vectors_c.mean(1)
        else:
            pooled = vectors_c.sum(1)
        expected = (pooled @ model.word.weight.T).log_softmax(-1).detach()
        assert_close(next_log_prob(model, prefix), expected, CLOSE, "next")


def test_noise_counts_contexts_for_skip_gram_and_words_for_cbow():
    """Skip-gram samples contexts, including `<start>`; CBOW samples words."""
    tokens = torch.tensor([[START, 3, 4, 0, 0, 0]])
    lengths = torch.tensor([3])
    counts = {"word2vec_skipgram": [0, 1, 0, 1, 1], "word2vec_cbow": [0, 0, 0, 1, 1]}
    for name, expected in counts.items():
        model = tiny(name, vocab=VOCAB, length=6).train()
        model.objective(tokens, lengths)
        assert model.noise.counts.tolist() == expected


N = 20_000
"""Number of sequences in which spans are counted."""


@pytest.fixture
def model() -> LanguageModel:
    return small("span_corruption")


def drawn(density: float, mean: float, count: int = 12) -> Tensor:
    u = torch.rand(N, count, generator=torch.Generator().manual_seed(0))
    return sample_spans(u, density, mean)


@pytest.mark.parametrize(("density", "mean"), [(0.15, 3.0), (0.5, 2.0), (0.3, 1.0)])
def test_spans_have_the_documented_frequencies(density, mean):
    masked = drawn(density, mean)
    for hidden in masked.unbind(1):
        assert_share(hidden, density)
    was = masked[:, :-1]
    now = masked[:, 1:]
    assert_share(now[was], 1 - 1 / mean)  # the length of spans
    assert_share(now[~was], density / (mean * (1 - density)))  # their beginnings


@pytest.mark.parametrize(("density", "mean"), [(0.15, 3.0), (0.5, 2.0), (0.3, 1.0)])
def test_spans_around_a_token_follow_the_conditional_distribution(density, mean):
    masked = drawn(density, mean, 6)
    u = torch.rand(N, 6, generator=torch.Generator().manual_seed(1))
    for at in range(6):
        around = sample_spans_around(at, u, density, mean)
        assert around[:, at].all()
        covering = masked[masked[:, at]]
        for t in {*range(6)} - {at}:
            expected = covering[:, t].double().mean().item()
            # Both sides are estimates; this doubles the variance of the smaller sample.
            assert_share(around[:, t], expected, len(covering) // 2)


def test_source_and_target_sequences_of_examples():
    """The example of `spans.py`, a sequence without hidden tokens, and one hidden completely."""
    tokens = torch.tensor([[1, 4, 5, 6, 7, 8], [1, 4, 5, 0, 0, 0], [1, 4, 5, 6, 0, 0]])
    lengths = torch.tensor([6, 3, 4])
    masked = torch.tensor([[0, 0, 1, 1, 0, 1], [0] * 6, [0, 1, 1, 1, 0, 0]], dtype=torch.bool)
    X = 9
    Y = 10
    source, n = corrupt(tokens, lengths, masked, vocab=9)
    expected = [[1, 4, X, 7, Y, 0], [1, 4, 5, 0, 0, 0], [1, X, 0, 0, 0, 0]]
    assert (source.tolist(), n.tolist()) == (expected, [5, 3, 2])
    target, position = span_targets(tokens, masked, vocab=9)
    assert target.tolist() == [[X, 5, 6, Y, 8], [0] * 5, [X, 4, 5, 6, 0]]
    assert target.gather(1, position.clamp_min(0))[masked].equal(tokens[masked])


def masks(count: int, *hidden_at: int) -> Tensor:
    masked = torch.zeros(count, 5, dtype=torch.bool)
    masked[:, list(hidden_at)] = True
    return masked


@pytest.mark.parametrize("hidden_at", [(1,), (2, 3), (1, 3), (1, 2, 4), (1, 2, 3, 4)])
@torch.no_grad()
def test_probabilities_of_all_fillings_of_the_spans_sum_to_one(model, hidden_at):
    """For every choice of the visible tokens."""
    tokens, lengths = every_sequence(model.task)
    masked = masks(len(tokens), *hidden_at)
    scores = model.eval().score_hidden(tokens, lengths, masked)
    assert (scores[~masked[:, 1:]] == 0).all()
    assert (scores[masked[:, 1:]] < 0).all()
    rest = tokens.masked_fill(masked, 0)
    for kept in rest.unique(dim=0):
        total = scores[(rest == kept).all(1)].double().sum(1).exp().sum()
        assert_close(
            total, torch.ones_like(total), CLOSE, f"total of all fillings of {kept.tolist()}"
        )


@torch.no_grad()
def test_evaluation_shares_spans_and_training_draws_new_ones():
    model = small("span_corruption", samples=3)
    tokens, lengths = batch(model.task)
    with patch.object(model, "score_hidden", wraps=model.score_hidden) as score:
        actual = log_prob(model, tokens, lengths)
        for noise in (0, 1):
            log_prob(model, tokens, lengths, training=True, noise=noise)
    model.eval()
    *recorded, first, second = [call.args[2] for call in score.call_args_list]
    assert not first.equal(second)
    assert len(recorded) == 3 * (tokens.shape[1] - 1)
    real = torch.arange(tokens.shape[1]) < lengths[:, None]
    assert all(masked.equal(masked[0] & real) for masked in recorded)
    assert not any(masked[:, 0].any() for masked in recorded), "<start> is hidden"
    for t in range(1, tokens.shape[1]):
        drawn = recorded[3 * t - 3 : 3 * t]
        assert all(masked[0, t] for masked in drawn), f"token {t} is not hidden"
        per_draw = [model.score_hidden(tokens, lengths, masked)[:, t - 1] for masked in drawn]
        mean = torch.stack(per_draw).mean(0)
        assert_close(actual[:, t], mean, CLOSE, f"mean over the draws at {t}")
