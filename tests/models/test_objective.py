"""Models with another objective: masks, contrasts, word2vec, corrupted spans."""

import math
from unittest.mock import patch

import pytest
import torch
from torch import nn
from torch.nn.functional import logsigmoid

from lmzoo.contract import START
from lmzoo.functional.token_scores import scored_mask
from lmzoo.laws.tiny import assert_close, log_prob, next_log_prob
from lmzoo.models.objective import contrastive_objective, mask_tokens
from lmzoo.models.span_corruption import corrupt, sample_spans, sample_spans_around, span_targets
from tests.cases import cases, parametrize, rows
from tests.models.equivalence import small, token_scores
from tests.tiny import CLOSE, assert_equal_double, assert_equal_single, batch, every_sequence, tiny

F = nn.functional
VOCAB = 5


def masked(**fields):
    return small("masked_lm", **fields)


def assert_share(successes, p, trials=0):
    """Assert that a share is within five standard deviations of the binomial mean p."""
    if not trials:
        trials = len(successes)
    variance = p * (1 - p) / trials
    share = successes.double().mean().item()
    assert abs(share - p) <= 5 * math.sqrt(variance)


@pytest.fixture(scope="module")
def many_tokens():
    torch.manual_seed(0)
    return torch.randint(1000, (400, 100))


@pytest.fixture(scope="module")
def words(many_tokens):
    """Return which tokens may be predicted."""
    torch.manual_seed(1)
    return torch.rand(many_tokens.shape) < 0.7


@pytest.fixture(scope="module")
def corrupted(many_tokens, words):
    shares = {"select": 0.15, "hide": 0.8, "swap": 0.1}
    torch.manual_seed(0)
    return mask_tokens(many_tokens, words, 1000, **shares)


def test_tokens_are_selected_with_the_given_probability(corrupted, words):
    assert_share(corrupted.predicted[words], 0.15)
    assert not corrupted.predicted[~words].any()


def test_selected_tokens_are_hidden_with_the_given_probability(corrupted):
    hidden = corrupted.hidden
    predicted = corrupted.predicted
    assert_share(hidden[predicted], 0.8)
    assert not hidden[~predicted].any()


def test_selected_tokens_are_swapped_with_the_given_probability(corrupted, many_tokens):
    changed = corrupted.tokens != many_tokens
    predicted = corrupted.predicted
    # A random token equals the original one with probability 1/1000.
    seen = 1 - 1 / 1000
    assert_share(changed[predicted], 0.1 * seen)
    assert_share(corrupted.tokens[changed] < 500, 0.5)
    assert not changed[corrupted.hidden].any()
    assert not changed[~predicted].any()


TREATMENTS = [(1.0, 0.0), (0.0, 0.0), (0.0, 1.0)]


@parametrize(("hide", "swap"), TREATMENTS)
def test_objective_is_the_score_of_the_corrupted_sentence(hide, swap):
    """All tokens are selected and all get the same treatment."""
    shares = {"select": 1.0, "hide": hide, "swap": swap}
    model = masked(dropout=0.0, **shares).eval()
    tokens, lengths = batch(model.task)
    mask = scored_mask(tokens, lengths)
    table = model.embedding.weight
    with torch.no_grad():
        torch.manual_seed(3)
        actual = model.objective(tokens, lengths)
        torch.manual_seed(3)
        # The same seed corrupts the same tokens.
        how = mask_tokens(tokens, mask, model.task.vocab, **shares)
        y = model.encode(how.tokens, lengths, how.hidden)
        dense = model.emission.dense(y, table)
    expected = token_scores(dense, tokens)
    assert_equal_single(actual, expected * mask)
    is_hidden = mask & (hide == 1.0)
    assert how.hidden.equal(is_hidden)
    unchanged = (how.tokens == tokens).all()
    assert unchanged == (swap == 0.0)


def draws_with_mean(model, tokens, lengths, mean):
    """Return draws of the objective, (draws, B, T); their mean is `mean` within five sigma."""
    draws = 1500
    torch.manual_seed(0)
    repeated = tokens.repeat(draws, 1)
    with torch.no_grad():
        many = model.objective(repeated, lengths.repeat(draws))
    many = many.unflatten(0, (draws, -1))
    difference = (many.mean(0) - mean).abs()
    tolerance = 5 * many.std(0) / draws**0.5
    # Rounding is left where all draws are equal.
    assert (difference <= tolerance + 1e-6).all()
    return many


def test_objective_equals_the_score_in_expectation():
    """Without attention the prediction of a token does not depend on the other tokens."""
    shares = {"select": 0.25, "hide": 1.0, "swap": 0.0}
    model = masked(dropout=0.0, layers=1, **shares)
    model.eval()
    (block,) = model.blocks
    with torch.no_grad():  # switch attention off
        block.attention.output.weight.zero_()
    tokens, lengths = batch(model.task, count=2)
    expected = log_prob(model, tokens, lengths)
    draws_with_mean(model, tokens, lengths, expected)


def test_the_posterior_of_a_component_follows_bayes_rule():
    model = masked(emission="mixture").eval()
    tokens, lengths = batch(model.task)
    posterior = model.posterior(tokens, lengths)
    features = model.masked_features(tokens, lengths)
    joint = model.emission.joint(features, tokens[:, 1:], model.embedding.weight)
    scores = log_prob(model, tokens, lengths)[:, 1:]
    # log P(k | token) = log P(k, token) - log P(token)
    expected = (joint - scores[..., None]).exp().mT
    scored = scored_mask(tokens, lengths)[:, 1:]
    assert_equal_single(posterior.mT[scored], expected.mT[scored])


@parametrize("emission", ["vector", "mixture"])
def test_score_hides_one_token_at_a_time(emission):
    model = masked(emission=emission).eval()
    tokens, lengths = batch(model.task)
    scores = log_prob(model, tokens, lengths)
    table = model.embedding.weight
    t = torch.arange(model.task.length)
    for u in range(1, model.task.length):
        # One place at a time.
        hidden = (t == u).expand_as(tokens)
        with torch.no_grad():
            y = model.encode(tokens, lengths, hidden)
            dense = model.emission.dense(y[:, u], table)
        expected = token_scores(dense, tokens[:, u])
        mask = u < lengths
        actual = scores[mask, u]
        assert_close(actual, expected[mask], CLOSE, f"score at {u}")


def contrastive_sum(scores, data, noise, k):
    """Return Σ_w [ p̃(w) log σ(s_w) + k q(w) log σ(−s_w) ]."""
    of_data = data * logsigmoid(scores)
    of_noise = k * noise * logsigmoid(-scores)
    return (of_data + of_noise).sum(-1)


class Draws:
    """All draws of a data word and k noise words, with their probabilities.

    The model is u, which is not normalised; its scores are s = log(u / kq).
    """

    def __init__(self, k):
        torch.manual_seed(0)
        logits = torch.randn(3, 7).double()
        self.data, self.noise, u = logits.softmax(-1)
        # It sums to 1.7, so that a normalised model would be seen.
        self.u = (1.7 * u).requires_grad_()
        self.kq = k * self.noise
        self.scores = torch.log(self.u / self.kq)
        choices = [torch.arange(7)] * (k + 1)
        words = torch.cartesian_prod(*choices)
        word = words[:, 0]
        noise_words = words[:, 1:]
        of_noise = self.noise[noise_words].prod(1)
        probabilities = self.data[word] * of_noise
        scores = self.scores[noise_words]
        objective = contrastive_objective(self.scores[word], scores)
        self.mean = (probabilities * objective).sum()


@parametrize("k", [1, 2])
def test_the_mean_over_all_draws_is_the_published_sum(k):
    draws = Draws(k)
    # The model takes a word as data with probability u / (kq + u).
    total = draws.kq + draws.u
    of_data = draws.data * torch.log(draws.u / total)
    of_noise = draws.kq * torch.log(draws.kq / total)
    expected = (of_data + of_noise).sum()
    assert_equal_double(draws.mean, expected)
    expected = contrastive_sum(draws.scores, draws.data, draws.noise, k)
    assert_equal_double(draws.mean, expected)


@parametrize("k", [1, 2])
def test_the_contrastive_objective_has_its_optimum_at_the_data(k):
    draws = Draws(k)
    (gradient,) = torch.autograd.grad(draws.mean, draws.u)
    total = draws.kq + draws.u
    difference = draws.data - draws.u
    expected = draws.kq / total * difference
    actual = gradient * draws.u
    assert_equal_double(actual, expected)


@parametrize("name", ["nce", "negative_sampling"])
def test_sampled_objective_has_the_exact_expectation(name):
    k = 3
    model = tiny(name, vocab=VOCAB, negatives=k)
    model.eval()
    tokens, lengths = batch(model.task, count=2)
    # Noise that is not uniform.
    seen = torch.tensor([0, 1, 1, 2, 2, 2])
    model.noise.update(seen, seen >= 0)
    words = tokens[:, 1:]
    q = noise_probabilities(model)
    with torch.no_grad():
        scores = model.unnormalised_scores(tokens[:, :-1])
        if name == "nce":
            scores = scores - torch.log(k * q)
        data = F.one_hot(words, VOCAB).to(scores)
        exact = contrastive_sum(scores, data, q, k)
    # `<start>` has no score.
    mask = scored_mask(tokens, lengths)
    exact = F.pad(exact, (1, 0)) * mask
    many = draws_with_mean(model, tokens, lengths, exact)
    random = many.std(0)[exact != 0]
    assert (random > 0).all()


def noise_probabilities(model):
    """Return q(v), (V,)."""
    like = torch.zeros(())
    log_q = model.noise.log_q(like)
    return log_q.exp()


def test_only_training_counts_noise_tokens():
    model = tiny("nce", vocab=VOCAB).eval()
    tokens, lengths = batch(model.task)
    model.objective(tokens, lengths)
    assert not model.noise.counts.any()


def test_training_counts_the_scored_tokens():
    model = tiny("nce", vocab=VOCAB).train()
    tokens, lengths = batch(model.task)
    model.objective(tokens, lengths)
    mask = scored_mask(tokens, lengths)
    scored = tokens[mask]
    expected = torch.bincount(scored, minlength=VOCAB)
    assert model.noise.counts.equal(expected)


def vectors(name, length=6, **fields):
    """Return a model with large vectors and a noise distribution that is not uniform."""
    sizes = {"vocab": VOCAB, "length": length}
    model = tiny(name, embedding_std=1.0, **sizes, **fields)
    # `<pad>` is never counted.
    counts = torch.tensor([0, 8, 2, 5, 1])
    model.noise.counts.copy_(counts)
    return model.eval()


def contexts(t, length, window):
    """Return the positions of the contexts of the word at t."""
    # A window ends at both ends of the sentence.
    first = max(0, t - window)
    last = min(length - 1, t + window)
    positions = set(range(first, last + 1))
    return sorted(positions - {t})


def clipped(x, max_norm):
    """Return rows that are no longer than a norm."""
    if not max_norm:
        return x
    lengths = x.norm(dim=-1, keepdim=True)
    scale = max_norm / lengths
    return x * scale.clamp_max(1)


@cases("models/cases.toml", "objectives", "name, fields")
def test_score_is_the_sum_over_pairs_plus_expected_noise(name, fields):
    model = vectors(name, **fields)
    tokens, lengths = batch(model.task)
    actual = log_prob(model, tokens, lengths)
    config = model.config
    q = noise_probabilities(model)
    words = clipped(model.word.weight, config.max_norm)
    words = words.detach()
    all_contexts = clipped(model.context.weight, config.max_norm)
    all_contexts = all_contexts.detach()
    for row, length in enumerate(lengths.tolist()):
        for t in range(1, length):
            word = words[tokens[row, t]]
            places = contexts(t, length, config.window)
            near = all_contexts[tokens[row, places]]
            # A word is paired with each of its contexts.
            squares = near.square().sum()
            squares += len(near) * word.square().sum()
            if getattr(config, "mean", False):
                near = near.mean(0, keepdim=True)
            # Skip-gram draws contexts for the word, CBOW draws words for the context.
            if name == "word2vec_skipgram":
                noise_scores = all_contexts @ word
                noise_scores = noise_scores.expand(len(near), -1)
            else:
                noise_scores = near @ words.T
            of_pairs = logsigmoid(near @ word).sum()
            of_noise = (logsigmoid(-noise_scores) @ q).sum()
            expected = of_pairs + config.negatives * of_noise
            expected = expected - config.l2 / 2 * squares
            found = actual[row, t]
            assert_close(found, expected, CLOSE, f"score of word {t}")


WORD2VEC = [
    ("word2vec_skipgram", {}),
    ("word2vec_cbow", {"mean": False}),
    ("word2vec_cbow", {"mean": True}),
]


@parametrize(("name", "fields"), WORD2VEC, ids=str)
def test_sampled_word2vec_has_the_score_as_expectation(name, fields):
    model = vectors(name, length=4, **fields)
    tokens, lengths = batch(model.task, count=2)
    expected = log_prob(model, tokens, lengths)
    many = draws_with_mean(model, tokens, lengths, expected)
    mask = scored_mask(tokens, lengths)
    random = many.std(0)[mask]
    assert (random > 0).all()


@parametrize("mean", [False, True])
def test_next_token_distribution_reads_the_window_before(*, mean):
    model = vectors("word2vec_cbow", window=2, mean=mean)
    prefix, _ = batch(model.task)
    last_two = prefix[:, -2:]
    near = model.context.weight[last_two]
    pooled = near.sum(1)
    if mean:
        pooled = near.mean(1)
    logits = pooled @ model.word.weight.T
    actual = next_log_prob(model, prefix)
    assert_equal_single(actual, logits.log_softmax(-1))


COUNTED = {
    "word2vec_skipgram": [0, 1, 0, 1, 1],
    "word2vec_cbow": [0, 0, 0, 1, 1],
}


@parametrize(("name", "counts"), COUNTED.items())
def test_noise_counts_contexts_for_skip_gram_and_words_for_cbow(name, counts):
    """Skip-gram samples contexts, including `<start>`; CBOW samples words."""
    sentence = [START, 3, 4, 0, 0, 0]
    tokens = torch.tensor([sentence])
    model = tiny(name, vocab=VOCAB, length=6).train()
    lengths = torch.tensor([3])
    model.objective(tokens, lengths)
    assert model.noise.counts.tolist() == counts


N = 20_000
"""Number of sequences in which spans are counted."""


@pytest.fixture
def model():
    return small("span_corruption")


def drawn(density, mean, count=12):
    torch.manual_seed(0)
    u = torch.rand(N, count)
    return sample_spans(u, density, mean)


DENSITIES = [(0.15, 3.0), (0.5, 2.0), (0.3, 1.0)]
FREQUENCIES = parametrize(("density", "mean"), DENSITIES)


@FREQUENCIES
def test_spans_have_the_documented_frequencies(density, mean):
    masked = drawn(density, mean)
    for hidden in masked.unbind(1):
        assert_share(hidden, density)
    # The states of a Markov chain, hidden and visible.
    before = masked[:, :-1]
    now = masked[:, 1:]
    going_on = 1 - 1 / mean
    # As many spans begin as end.
    beginning = density / (mean * (1 - density))
    assert_share(now[before], going_on)
    assert_share(now[~before], beginning)


@FREQUENCIES
def test_spans_around_a_token_follow_the_conditional_distribution(density, mean):
    # Few tokens, so that every pair of places occurs often.
    masked = drawn(density, mean, 6)
    u = torch.rand(N, 6)
    for at in range(6):
        around = sample_spans_around(at, u, density, mean)
        assert around[:, at].all()
        covering = masked[masked[:, at]]
        # Both sides are estimates; this doubles the variance of the smaller sample.
        trials = len(covering) // 2
        for t in set(range(6)) - {at}:
            hidden = covering[:, t].double()
            expected = hidden.mean().item()
            assert_share(around[:, t], expected, trials)


SPANS = rows("models/cases.toml", "spans")
TOKENS = torch.tensor(SPANS["tokens"])
HIDDEN = torch.tensor(SPANS["hidden"]).bool()


def test_a_source_has_marks_in_place_of_spans():
    full_lengths = torch.tensor(SPANS["lengths"])
    source, lengths = corrupt(TOKENS, full_lengths, HIDDEN, vocab=9)
    assert source.tolist() == SPANS["source"]
    assert lengths.tolist() == SPANS["source_lengths"]


def test_a_target_has_the_tokens_of_each_span_after_its_mark():
    target, _ = span_targets(TOKENS, HIDDEN, vocab=9)
    assert target.tolist() == SPANS["target"]


def test_positions_find_hidden_tokens_in_the_target():
    # Before the first span, the position is −1.
    target, position = span_targets(TOKENS, HIDDEN, vocab=9)
    found = target.gather(1, position.clamp_min(0))
    assert found[HIDDEN].equal(TOKENS[HIDDEN])


# One span, several, and all words.
PLACES = [[1], [2, 3], [1, 3], [1, 2, 4], [1, 2, 3, 4]]


@parametrize("hidden_at", PLACES, ids=str)
@torch.no_grad()
def test_probabilities_of_all_fillings_of_the_spans_sum_to_one(model, hidden_at):
    """For every choice of the visible tokens."""
    tokens, lengths = every_sequence(model.task)
    masked = torch.zeros_like(tokens).bool()
    masked[:, hidden_at] = True
    scores = model.eval().score_hidden(tokens, lengths, masked)
    scored = masked[:, 1:]
    assert (scores[~scored] == 0).all()
    assert (scores[scored] < 0).all()
    visible = tokens.masked_fill(masked, 0)
    for kept in visible.unique(dim=0):
        fillings = (visible == kept).all(1)
        of_filling = scores[fillings].double().sum(1)
        total = of_filling.exp().sum()
        assert abs(total - 1) <= CLOSE, kept.tolist()


SAMPLES = 3


@pytest.fixture
def sampling():
    return small("span_corruption", samples=SAMPLES)


def hidden_tokens(model, *noise):
    """Return what an evaluation, or a training with each noise, hides."""
    tokens, lengths = batch(model.task)
    score = model.score_hidden
    with patch.object(model, "score_hidden", wraps=score) as recorded:
        if not noise:
            log_prob(model, tokens, lengths)
        for seed in noise:
            log_prob(model, tokens, lengths, training=True, noise=seed)
    return [call.args[2] for call in recorded.call_args_list]


@torch.no_grad()
def test_training_draws_new_spans(sampling):
    first, second = hidden_tokens(sampling, 0, 1)
    assert not first.equal(second)


@torch.no_grad()
def test_training_divides_the_score_of_a_hidden_token_by_the_density():
    model = small("span_corruption", dropout=0.0)
    tokens, lengths = batch(model.task)
    (masked,) = hidden_tokens(model, 0)
    actual = log_prob(model, tokens, lengths, training=True, noise=0)
    of_draw = model.score_hidden(tokens, lengths, masked)
    # A token is hidden with this probability, so the expectation is the score.
    expected = of_draw / model.config.density
    assert_close(actual[:, 1:], expected, CLOSE, "score of a draw")


@torch.no_grad()
def test_the_sequences_of_an_evaluation_share_spans(sampling):
    tokens, lengths = batch(sampling.task)
    places = torch.arange(tokens.shape[1])
    real = places < lengths[:, None]
    for hidden in hidden_tokens(sampling):
        first = hidden[0]
        assert hidden.equal(first & real)
        assert not hidden[:, 0].any(), "<start> is hidden"


@torch.no_grad()
def test_the_score_of_a_token_is_the_mean_over_draws_that_hide_it(sampling):
    tokens, lengths = batch(sampling.task)
    actual = log_prob(sampling, tokens, lengths)
    hidden = hidden_tokens(sampling)
    sampling.eval()
    words = tokens.shape[1] - 1
    assert len(hidden) == SAMPLES * words
    for t in range(1, words + 1):
        last = SAMPLES * t
        scores = []
        for masked in hidden[last - SAMPLES : last]:
            assert masked[0, t], f"token {t} is not hidden"
            of_draw = sampling.score_hidden(tokens, lengths, masked)
            scores.append(of_draw[:, t - 1])
        mean = torch.stack(scores).mean(0)
        found = actual[:, t]
        assert_close(found, mean, CLOSE, f"mean over the draws at {t}")
