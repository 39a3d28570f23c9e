"""Models with another objective: masks, contrasts, word2vec, corrupted spans."""

import math
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from lmzoo.contract import START, LanguageModel
from lmzoo.functional.token_scores import scored_mask
from lmzoo.laws.tiny import assert_close, log_prob, next_log_prob
from lmzoo.models.objective import contrastive_objective, mask_tokens
from lmzoo.models.span_corruption import corrupt, sample_spans, sample_spans_around, span_targets
from tests.cases import cases
from tests.models.equivalence import small
from tests.tiny import CLOSE, assert_equal_double, assert_equal_single, batch, every_sequence, tiny

F = nn.functional
VOCAB = 5


def masked(**fields):
    return small("masked_lm", **fields)


def assert_share(successes: Tensor, p: float, trials: int = 0):
    """Assert that a share is within five standard deviations of the binomial mean p."""
    if not trials:
        trials = len(successes)
    deviation = math.sqrt(p * (1 - p) / trials)
    share = successes.double().mean().item()
    assert abs(share - p) <= 5 * deviation


@pytest.fixture(scope="module")
def many_tokens() -> Tensor:
    return torch.randint(1000, (400, 100), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def words(many_tokens: Tensor) -> Tensor:
    """Return which tokens may be predicted."""
    generator = torch.Generator().manual_seed(1)
    return torch.rand(many_tokens.shape, generator=generator) < 0.7


@pytest.fixture(scope="module")
def corrupted(many_tokens: Tensor, words: Tensor):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return mask_tokens(many_tokens, words, 1000, select=0.15, hide=0.8, swap=0.1)


def test_tokens_are_selected_with_the_given_probability(corrupted, words):
    assert_share(corrupted.predicted[words], 0.15)
    assert not corrupted.predicted[~words].any()


def test_selected_tokens_are_hidden_with_the_given_probability(corrupted):
    assert_share(corrupted.hidden[corrupted.predicted], 0.8)
    assert not corrupted.hidden[~corrupted.predicted].any()


def test_selected_tokens_are_swapped_with_the_given_probability(corrupted, many_tokens):
    changed = corrupted.tokens != many_tokens
    # A random token equals the original one with probability 1/1000.
    assert_share(changed[corrupted.predicted], 0.1 * (1 - 1 / 1000))
    assert_share(corrupted.tokens[changed] < 500, 0.5)
    assert not changed[corrupted.hidden].any()
    assert not changed[~corrupted.predicted].any()


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
    expected = dense.gather(-1, tokens[..., None])[..., 0]
    assert_equal_single(actual, expected * mask)
    assert how.hidden.equal(mask & (hide == 1.0))
    unchanged = (how.tokens == tokens).all()
    assert unchanged == (swap == 0.0)


def draws_with_mean(model, tokens: Tensor, lengths: Tensor, mean: Tensor) -> Tensor:
    """Return draws of the objective, (draws, B, T); their mean is `mean` within five sigma."""
    draws = 1500
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        many = model.objective(tokens.repeat(draws, 1), lengths.repeat(draws))
    many = many.unflatten(0, (draws, -1))
    difference = (many.mean(0) - mean).abs()
    standard_error = many.std(0) / draws**0.5
    assert (difference <= 5 * standard_error + 1e-6).all()
    return many


def test_objective_equals_the_score_in_expectation():
    """Without attention the prediction of a token does not depend on the other tokens."""
    model = masked(select=0.25, hide=1.0, swap=0.0, dropout=0.0, layers=1).eval()
    with torch.no_grad():  # switch attention off
        model.blocks[0].attention.output.weight.zero_()
    tokens, lengths = batch(model.task, count=2)
    expected = log_prob(model, tokens, lengths)
    draws_with_mean(model, tokens, lengths, expected)


@pytest.mark.parametrize("emission", ["vector", "mixture"])
def test_score_hides_one_token_at_a_time(emission):
    model = masked(emission=emission).eval()
    tokens, lengths = batch(model.task)
    scores = log_prob(model, tokens, lengths)
    t = torch.arange(model.task.length)
    for u in range(1, model.task.length):
        hidden = (t == u).expand_as(tokens)
        with torch.no_grad():
            y = model.encode(tokens, lengths, hidden)
            dense = model.emission.dense(y[:, u], model.embedding.weight)
        expected = dense.gather(1, tokens[:, u, None])[:, 0]
        mask = u < lengths
        assert_close(scores[mask, u], expected[mask], CLOSE, f"score at {u}")


def contrastive_sum(scores: Tensor, data: Tensor, noise: Tensor, k: int) -> Tensor:
    """Return Σ_w [ p̃(w) log σ(s_w) + k q(w) log σ(−s_w) ]."""
    of_data = data * logsigmoid(scores)
    of_noise = k * noise * logsigmoid(-scores)
    return (of_data + of_noise).sum(-1)


class Draws:
    """All draws of a data word and k noise words, with their probabilities.

    The model is u, which is not normalised; its scores are s = log(u / kq).
    """

    def __init__(self, k: int):
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn(3, 7, generator=generator).double()
        self.data, self.noise, u = logits.softmax(-1)
        # It sums to 1.7, so that a normalised model would be seen.
        self.u = (1.7 * u).requires_grad_()
        self.kq = k * self.noise
        self.scores = (self.u / self.kq).log()
        words = torch.cartesian_prod(*[torch.arange(7)] * (k + 1))
        word = words[:, 0]
        noise_words = words[:, 1:]
        probabilities = self.data[word] * self.noise[noise_words].prod(1)
        objective = contrastive_objective(self.scores[word], self.scores[noise_words])
        self.mean = (probabilities * objective).sum()


@pytest.mark.parametrize("k", [1, 2])
def test_the_mean_over_all_draws_is_the_published_sum(k):
    draws = Draws(k)
    total = draws.kq + draws.u
    of_data = draws.data * (draws.u / total).log()
    of_noise = draws.kq * (draws.kq / total).log()
    assert_equal_double(draws.mean, (of_data + of_noise).sum())
    expected = contrastive_sum(draws.scores, draws.data, draws.noise, k)
    assert_equal_double(draws.mean, expected)


@pytest.mark.parametrize("k", [1, 2])
def test_the_contrastive_objective_has_its_optimum_at_the_data(k):
    draws = Draws(k)
    (gradient,) = torch.autograd.grad(draws.mean, draws.u)
    share_of_noise = draws.kq / (draws.kq + draws.u)
    expected = share_of_noise * (draws.data - draws.u)
    assert_equal_double(gradient * draws.u, expected)


@pytest.mark.parametrize("name", ["nce", "negative_sampling"])
def test_sampled_objective_has_the_exact_expectation(name):
    k = 3
    model = tiny(name, vocab=VOCAB, negatives=k).eval()
    tokens, lengths = batch(model.task, count=2)
    seen = torch.tensor([0, 1, 1, 2, 2, 2])
    model.noise.update(seen, torch.ones(6, dtype=torch.bool))
    with torch.no_grad():
        q = model.noise.log_q(torch.zeros(())).exp()
        scores = model.unnormalised_scores(tokens[:, :-1])
        if name == "nce":
            scores = scores - (k * q).log()
        data = F.one_hot(tokens[:, 1:], VOCAB).to(scores)
        exact = contrastive_sum(scores, data, q, k)
    exact = F.pad(exact, (1, 0)) * scored_mask(tokens, lengths)
    many = draws_with_mean(model, tokens, lengths, exact)
    assert (many.std(0)[exact != 0] > 0).all()


def test_only_training_counts_noise_tokens():
    model = tiny("nce", vocab=VOCAB).eval()
    model.objective(*batch(model.task))
    assert not model.noise.counts.any()


def test_training_counts_the_scored_tokens():
    model = tiny("nce", vocab=VOCAB).train()
    tokens, lengths = batch(model.task)
    model.objective(tokens, lengths)
    scored = tokens[scored_mask(tokens, lengths)]
    expected = torch.bincount(scored, minlength=VOCAB)
    assert model.noise.counts.equal(expected)


def vectors(name: str, length: int = 6, **fields):
    """Return a model with large vectors and a noise distribution that is not uniform."""
    model = tiny(name, vocab=VOCAB, length=length, embedding_std=1.0, **fields)
    # `<pad>` is never counted.
    model.noise.counts.copy_(torch.tensor([0, 8, 2, 5, 1]))
    return model.eval()


def contexts(t: int, length: int, window: int) -> list[int]:
    """Return the positions of the contexts of the word at t."""
    first = max(0, t - window)
    last = min(length - 1, t + window)
    return [j for j in range(first, last + 1) if j != t]


def clipped(x: Tensor, max_norm: float | None) -> Tensor:
    """Return rows that are no longer than a norm."""
    if not max_norm:
        return x
    scale = max_norm / x.norm(dim=-1, keepdim=True)
    return x * scale.clamp_max(1)


@cases("models/cases.toml", "objectives", "name, fields")
def test_score_is_the_sum_over_pairs_plus_expected_noise(name, fields):
    model = vectors(name, **fields)
    tokens, lengths = batch(model.task)
    actual = log_prob(model, tokens, lengths)
    config = model.config
    q = model.noise.log_q(torch.zeros(())).exp()
    words = clipped(model.word.weight, config.max_norm).detach()
    all_contexts = clipped(model.context.weight, config.max_norm).detach()
    for row, length in enumerate(lengths.tolist()):
        for t in range(1, length):
            word = words[tokens[row, t]]
            near = all_contexts[tokens[row, contexts(t, length, config.window)]]
            squares = near.square().sum() + len(near) * word.square().sum()
            if getattr(config, "mean", False):
                near = near.mean(0, keepdim=True)
            # Skip-gram draws contexts for the word, CBOW draws words for the context.
            if name == "word2vec_skipgram":
                noise_scores = (all_contexts @ word).expand(len(near), -1)
            else:
                noise_scores = near @ words.T
            of_pairs = logsigmoid(near @ word).sum()
            of_noise = config.negatives * (logsigmoid(-noise_scores) @ q).sum()
            expected = of_pairs + of_noise - config.l2 / 2 * squares
            assert_close(actual[row, t], expected, CLOSE, f"score of word {t}")


WORD2VEC = [
    ("word2vec_skipgram", {}),
    ("word2vec_cbow", {"mean": False}),
    ("word2vec_cbow", {"mean": True}),
]


@pytest.mark.parametrize(("name", "fields"), WORD2VEC, ids=str)
def test_sampled_word2vec_has_the_score_as_expectation(name, fields):
    model = vectors(name, length=4, **fields)
    tokens, lengths = batch(model.task, count=2)
    expected = log_prob(model, tokens, lengths)
    many = draws_with_mean(model, tokens, lengths, expected)
    assert (many.std(0)[scored_mask(tokens, lengths)] > 0).all()


@pytest.mark.parametrize("mean", [False, True])
def test_next_token_distribution_reads_the_window_before(*, mean):
    model = vectors("word2vec_cbow", window=2, mean=mean)
    prefix, _ = batch(model.task)
    near = model.context.weight[prefix[:, -2:]]
    pooled = near.sum(1)
    if mean:
        pooled = near.mean(1)
    expected = (pooled @ model.word.weight.T).log_softmax(-1)
    assert_equal_single(next_log_prob(model, prefix), expected)


COUNTED = [("word2vec_skipgram", [0, 1, 0, 1, 1]), ("word2vec_cbow", [0, 0, 0, 1, 1])]


@pytest.mark.parametrize(("name", "counts"), COUNTED)
def test_noise_counts_contexts_for_skip_gram_and_words_for_cbow(name, counts):
    """Skip-gram samples contexts, including `<start>`; CBOW samples words."""
    tokens = torch.tensor([[START, 3, 4, 0, 0, 0]])
    model = tiny(name, vocab=VOCAB, length=6).train()
    model.objective(tokens, torch.tensor([3]))
    assert model.noise.counts.tolist() == counts


N = 20_000
"""Number of sequences in which spans are counted."""


@pytest.fixture
def model() -> LanguageModel:
    return small("span_corruption")


def drawn(density: float, mean: float, count: int = 12) -> Tensor:
    u = torch.rand(N, count, generator=torch.Generator().manual_seed(0))
    return sample_spans(u, density, mean)


FREQUENCIES = pytest.mark.parametrize(("density", "mean"), [(0.15, 3.0), (0.5, 2.0), (0.3, 1.0)])


@FREQUENCIES
def test_spans_have_the_documented_frequencies(density, mean):
    masked = drawn(density, mean)
    for hidden in masked.unbind(1):
        assert_share(hidden, density)
    before = masked[:, :-1]
    now = masked[:, 1:]
    going_on = 1 - 1 / mean
    beginning = density / (mean * (1 - density))
    assert_share(now[before], going_on)
    assert_share(now[~before], beginning)


@FREQUENCIES
def test_spans_around_a_token_follow_the_conditional_distribution(density, mean):
    # Few tokens, so that every pair of places occurs often.
    masked = drawn(density, mean, 6)
    u = torch.rand(N, 6, generator=torch.Generator().manual_seed(1))
    for at in range(6):
        around = sample_spans_around(at, u, density, mean)
        assert around[:, at].all()
        covering = masked[masked[:, at]]
        # Both sides are estimates; this doubles the variance of the smaller sample.
        trials = len(covering) // 2
        for t in set(range(6)) - {at}:
            expected = covering[:, t].double().mean().item()
            assert_share(around[:, t], expected, trials)


X = 9
Y = 10
"""The marks of the first and of the second span, after a vocabulary of nine words."""


class Spans:
    """The example of `spans.py`, a sequence without hidden tokens, and one hidden completely."""

    tokens = torch.tensor([[1, 4, 5, 6, 7, 8], [1, 4, 5, 0, 0, 0], [1, 4, 5, 6, 0, 0]])
    lengths = torch.tensor([6, 3, 4])
    hidden = torch.tensor([[0, 0, 1, 1, 0, 1], [0, 0, 0, 0, 0, 0], [0, 1, 1, 1, 0, 0]]).bool()


def test_a_source_has_marks_in_place_of_spans():
    source, lengths = corrupt(Spans.tokens, Spans.lengths, Spans.hidden, vocab=9)
    assert source.tolist() == [[1, 4, X, 7, Y, 0], [1, 4, 5, 0, 0, 0], [1, X, 0, 0, 0, 0]]
    assert lengths.tolist() == [5, 3, 2]


def test_a_target_has_the_tokens_of_each_span_after_its_mark():
    target, _ = span_targets(Spans.tokens, Spans.hidden, vocab=9)
    assert target.tolist() == [[X, 5, 6, Y, 8], [0, 0, 0, 0, 0], [X, 4, 5, 6, 0]]


def test_positions_find_hidden_tokens_in_the_target():
    target, position = span_targets(Spans.tokens, Spans.hidden, vocab=9)
    found = target.gather(1, position.clamp_min(0))
    assert found[Spans.hidden].equal(Spans.tokens[Spans.hidden])


@pytest.mark.parametrize("hidden_at", [[1], [2, 3], [1, 3], [1, 2, 4], [1, 2, 3, 4]], ids=str)
@torch.no_grad()
def test_probabilities_of_all_fillings_of_the_spans_sum_to_one(model, hidden_at):
    """For every choice of the visible tokens."""
    tokens, lengths = every_sequence(model.task)
    masked = torch.zeros_like(tokens, dtype=torch.bool)
    masked[:, hidden_at] = True
    scores = model.eval().score_hidden(tokens, lengths, masked)
    assert (scores[~masked[:, 1:]] == 0).all()
    assert (scores[masked[:, 1:]] < 0).all()
    visible = tokens.masked_fill(masked, 0)
    for kept in visible.unique(dim=0):
        fillings = (visible == kept).all(1)
        total = scores[fillings].double().sum(1).exp().sum()
        assert abs(total - 1) <= CLOSE, kept.tolist()


SAMPLES = 3


@pytest.fixture
def sampling() -> LanguageModel:
    return small("span_corruption", samples=SAMPLES)


def hidden_tokens(model: LanguageModel, *noise: int) -> list[Tensor]:
    """Return what an evaluation, or a training with each noise, hides."""
    tokens, lengths = batch(model.task)
    with patch.object(model, "score_hidden", wraps=model.score_hidden) as score:
        if not noise:
            log_prob(model, tokens, lengths)
        for seed in noise:
            log_prob(model, tokens, lengths, training=True, noise=seed)
    return [call.args[2] for call in score.call_args_list]


@torch.no_grad()
def test_training_draws_new_spans(sampling):
    first, second = hidden_tokens(sampling, 0, 1)
    assert not first.equal(second)


@torch.no_grad()
def test_the_sequences_of_an_evaluation_share_spans(sampling):
    tokens, lengths = batch(sampling.task)
    real = torch.arange(tokens.shape[1]) < lengths[:, None]
    for hidden in hidden_tokens(sampling):
        assert hidden.equal(hidden[0] & real)
        assert not hidden[:, 0].any(), "<start> is hidden"


@torch.no_grad()
def test_the_score_of_a_token_is_the_mean_over_draws_that_hide_it(sampling):
    tokens, lengths = batch(sampling.task)
    actual = log_prob(sampling, tokens, lengths)
    hidden = hidden_tokens(sampling)
    sampling.eval()
    assert len(hidden) == SAMPLES * (tokens.shape[1] - 1)
    for t in range(1, tokens.shape[1]):
        draws = hidden[SAMPLES * (t - 1) : SAMPLES * t]
        scores = []
        for masked in draws:
            assert masked[0, t], f"token {t} is not hidden"
            scores.append(sampling.score_hidden(tokens, lengths, masked)[:, t - 1])
        mean = torch.stack(scores).mean(0)
        assert_close(actual[:, t], mean, CLOSE, f"mean over the draws at {t}")
