"""Aggregate Markov models, chains of one or two tokens, and latent parents, against sums."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.functional.normalise import Norm, normalise_vectors
from lmzoo.laws.tiny import assert_close, log_prob
from tests.cases import cases, parametrize
from tests.largest_tensor import LargestTensorMode
from tests.models.equivalence import (
    ALWAYS,
    LENGTH,
    NEVER,
    VOCAB,
    assert_equation,
    set_weights,
    small,
)
from tests.tiny import (
    CLOSE,
    SAME,
    assert_equal_double,
    assert_equal_single,
    batch,
    every_sequence,
    quick,
    tiny,
)

FACTORIAL = "factorial_aggregate_markov"


def words(model):
    """Return P(v | z), (K, V)."""
    if hasattr(model, "words"):
        part = model.words
    else:
        part = model.prototypes
    if not hasattr(part, "means"):
        return torch.softmax(part.logits, dim=1)
    scale = 1
    if part.log_scale is not None:
        scale = part.log_scale.exp()
    means = normalise_vectors(part.means, part.norm)
    logits = scale * means @ table(model).T
    return torch.softmax(logits, dim=1)


def table(model):
    return model.embedding.weight


def read(model, prefix):
    """Return N(e(s)) of each token."""
    vectors = table(model)[prefix]
    norm = getattr(model.config, "norm", Norm.NONE)
    return normalise_vectors(vectors, norm)


def gate_of(model, prefix):
    """Return the logits of the latent that reads the last token."""
    last = table(model)[prefix[-1]]
    return model.gate(last)


def aggregate_markov(model, prefix):
    weights = torch.softmax(gate_of(model, prefix), 0)
    return weights @ words(model)


def lagged_aggregate_markov(model, prefix):
    """The vectors before the start are not normalised."""
    # The config names what stands for tokens before the start.
    fill = 0.5
    if model.config.pad == "ones":
        fill = 1.0
    before = torch.full((model.config.window, 4), fill)
    nearest_first = read(model, prefix).flip(0)
    context = torch.cat([nearest_first, before])
    logits = torch.zeros(len(words(model)))
    for j, lag in enumerate(model.lags):
        # Each lag counts half as much as the nearer one.
        share = 1 / 2 ** (j + 1)
        logits = logits + share * lag(context[j])
    return torch.softmax(logits, 0) @ words(model)


def factorial_aggregate_markov(model, prefix):
    logits = gate_of(model, prefix).view(2, 3)
    gates = torch.softmax(logits, 1)
    by_group = words(model).view(2, 3, -1)
    factors = torch.einsum("gk,gkv->gv", gates, by_group)
    product = factors[0] * factors[1]
    return product / product.sum()


def prototype_rotation_mixture(model, prefix):
    x = read(model, prefix)[-1]
    weights = torch.softmax(model.gate(x), 0)
    # The mapped vector is not normalised.
    logits = table(model) @ model.map(x)
    mapped = torch.softmax(logits, 0)
    rest = weights[1:] @ words(model)
    return weights[0] * mapped + rest


def local_hmm(model, prefix):
    seen = words(model)[:, prefix[-1]]
    joint = model.start().exp() * seen
    # The state is filtered by the last token only.
    filtered = joint / joint.sum()
    transition = torch.softmax(model.transition, 1)
    return filtered @ transition @ words(model)


def latent_crf(model, prefix):
    """A chain of one or two transitions from a uniform state, normalised as a whole."""
    ones = torch.ones(1, 4)
    vectors = torch.cat([ones, read(model, prefix)])
    # Three states, all alike.
    weights = torch.ones(3)
    for x in vectors[-model.context_length :]:
        potentials = model.potentials(x).view(3, 3)
        weights = weights @ potentials.exp()
        weights = weights / weights.sum()
    return weights @ words(model)


def parents(model, prefix):
    """P(v | s_a) is a bigram for each type of arc, or an aggregate Markov model."""
    t = len(prefix)
    # Without alignment, every parent is as probable.
    prior = torch.ones(t)
    if model.context_length is not None:
        first = max(0, t - model.context_length)
        prior[:first] = 0
    if hasattr(model, "alignment"):
        logits = model.alignment.logits[:t, t]
        prior = torch.softmax(logits, 0)
    prior = prior / prior.sum()
    total = torch.zeros(VOCAB)
    for a, x in enumerate(table(model)[prefix]):
        if hasattr(model, "words"):
            gate = torch.softmax(model.gate(x), 0)
            of_parent = gate @ words(model)
        else:
            types = type_weights(model, a, t)
            of_parent = types @ bigrams(model, x)
        total = total + prior[a] * of_parent
    return total


def bigrams(model, x):
    """Return P(v | s_a, type) of each type of arc, (R, V)."""
    mapped = model.transition(x).view(-1, 4)
    logits = mapped @ table(model).T
    return torch.softmax(logits, 1)


def type_weights(model, a, t):
    """Return the probabilities of the types of the arc from a to t."""
    one_type = torch.zeros(1, 1, 1)
    logits = getattr(model, "types", one_type)
    weights = torch.softmax(logits, 0)
    # Types may be the same for every arc.
    by_arc = weights.expand(-1, LENGTH, LENGTH)
    return by_arc[:, a, t]


def two_parents(model, prefix):
    """Return P(i, j, v) of parents i and j, (t, t, V)."""
    t = len(prefix)
    x = table(model)[prefix]
    pairs = model.pairs[:t, :t, t].flatten()
    prior = torch.softmax(pairs, 0)
    prior = prior.view(t, t, 1)
    of_first = model.first(x)[:, None]
    logits = of_first + model.second(x)
    states = torch.softmax(logits, 2)
    return prior * (states @ words(model))


def two_parent_aggregate_markov(model, prefix):
    joint = two_parents(model, prefix)
    return joint.sum((0, 1))


EQUATIONS = (
    aggregate_markov,
    lagged_aggregate_markov,
    factorial_aggregate_markov,
    prototype_rotation_mixture,
    local_hmm,
    latent_crf,
    parents,
    two_parent_aggregate_markov,
)
BY_NAME = {equation.__name__: equation for equation in EQUATIONS}


@torch.no_grad()
@cases("models/cases.toml", "latent", "name, equation, fields")
def test_distributions_equal_the_equation(name, equation, fields):
    model = small(name, **fields)
    assert_equation(model, BY_NAME[equation])


@torch.no_grad()
def test_parents_without_a_window_are_all_earlier_tokens():
    model = small("latent_parent_uniform", window=None)
    assert_equation(model, parents)


NORMED = {
    "prototype_rotation_mixture": prototype_rotation_mixture,
    "trigram_latent_crf": latent_crf,
    "aligned_aggregate_markov": parents,
}


@torch.no_grad()
@parametrize("norm", Norm)
@parametrize("name", NORMED)
def test_distributions_equal_the_equation_with_every_norm(name, norm):
    model = small(name, norm=norm)
    assert_equation(model, NORMED[name])


GROUPS = st.integers(1, 4)
SPREADS = st.floats(0.0, 4.0)


@quick
@given(GROUPS, SPREADS, st.integers(0, 99))
def test_bound_is_at_most_the_exact_score(groups, spread, seed):
    model = small(FACTORIAL, groups=groups)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=spread)
    tokens, lengths = every_sequence(model.task)
    exact = log_prob(model, tokens, lengths)[:, 1:]
    bound = model.bound(tokens)
    assert (bound <= exact + CLOSE).all()


@parametrize("groups", [1, 2, 3])
def test_both_ways_to_compute_the_normaliser_agree(groups):
    """Compare the sum over tokens with the sum over joint states."""
    model = small(FACTORIAL, groups=groups, states=3).double()
    with torch.no_grad():
        model.words.means.normal_(std=3.0)
    # As many tokens as joint states, which are summed over then.
    tokens = torch.arange(3**groups) % VOCAB
    x = model.embedding.weight[tokens]
    by_states = model.log_normaliser(x)
    # Fewer sequences than joint states are summed over tokens.
    first = model.log_normaliser(x[:1])
    rest = model.log_normaliser(x[1:])
    parts = [first, rest]
    by_tokens = torch.cat(parts)
    assert_equal_double(by_states, by_tokens)


def test_training_uses_the_bound():
    model = small(FACTORIAL, objective="bound")
    tokens, lengths = every_sequence(model.task)
    scores = log_prob(model, tokens, lengths, training=True)
    actual = scores[:, 1:]
    expected = model.bound(tokens)
    assert_close(actual, expected, SAME, "bound")


def test_evaluation_uses_the_exact_score():
    plain = small(FACTORIAL)
    bounded = small(FACTORIAL, objective="bound")
    tokens, lengths = every_sequence(plain.task)
    exact = log_prob(plain, tokens, lengths)
    evaluated = log_prob(bounded, tokens, lengths)
    assert_close(evaluated, exact, SAME, "score")


def test_posterior_mass_of_each_group_is_one_over_g():
    model = small(FACTORIAL, groups=2, states=3)
    tokens, lengths = every_sequence(model.task)
    posterior = model.posterior(tokens, lengths)
    posteriors = posterior.unflatten(1, (2, 3))
    by_group = posteriors.sum(2)
    expected = torch.full_like(by_group, 1 / 2)
    assert_equal_single(by_group, expected)


def test_latent_value_zero_is_the_map():
    model = small("prototype_rotation_mixture")
    bias = torch.tensor([-NEVER, 0, 0, 0])
    set_weights(model, {"gate.bias": bias})
    tokens, lengths = every_sequence(model.task)
    posterior = model.posterior(tokens, lengths)
    assert posterior.shape[1] == 4
    of_map = posterior[:, 0]
    assert (of_map > 0.99).all()


@parametrize("name", ["aggregate_markov", "local_hmm", "trigram_latent_crf"])
def test_posterior_follows_bayes_rule(name):
    """P(z | s_t, s_<t) ∝ P(z | s_<t) P(s_t | z)."""
    model = small(name)
    tokens, lengths = batch(model.task)
    weights = model.log_weights(tokens[:, :-1])
    prior = weights.exp()
    by_token = words(model).T
    joint = prior * by_token[tokens[:, 1:]]
    expected = joint / joint.sum(-1, keepdim=True)
    actual = model.posterior(tokens, lengths)
    assert_equal_single(actual, expected.transpose(1, 2))


PREVIOUS_ONLY = torch.eye(LENGTH).roll(1, 1)
PREVIOUS = NEVER * (1 - PREVIOUS_ONLY)
"""Alignment logits Λ with all mass on a = t-1."""


def test_latent_index_of_typed_arcs_is_parent_times_types_plus_type():
    """With all mass on type 1 of the previous token, the posterior is at its index."""
    model = small("latent_parent_typed", types=2, arcs="positional")
    chosen = torch.full((2, LENGTH, LENGTH), NEVER)
    chosen[1] = ALWAYS
    set_weights(model, {"alignment.logits": PREVIOUS, "types": chosen})
    tokens, lengths = batch(model.task)
    posterior = model.posterior(tokens, lengths)  # B, a R + r, t
    expected = [2 * a + 1 for a in range(LENGTH - 1)]
    most_probable = posterior[0].argmax(0)
    assert most_probable.tolist() == expected


@torch.no_grad()
def test_the_posterior_of_two_parents_is_that_of_the_second():
    model = small("two_parent_aggregate_markov")
    tokens, _ = batch(model.task)
    lengths = torch.full((len(tokens),), LENGTH)
    posterior = model.posterior(tokens, lengths)[0]
    sentence = tokens[0]
    for t in range(1, LENGTH):
        every_token = two_parents(model, sentence[:t])
        joint = every_token[..., sentence[t]]
        expected = joint.sum(0) / joint.sum()
        actual = posterior[:t, t - 1]
        assert_close(actual, expected, CLOSE, f"P(j | s_{t})")
        assert not posterior[t:, t - 1].any()


def test_largest_tensor_has_at_most_b_t2_k_elements():
    count = 5
    length = 13
    components = 7
    sizes = {"length": length, "components": components}
    model = tiny("two_parent_aggregate_markov", **sizes)
    tokens, lengths = batch(model.task, count=count)
    with LargestTensorMode() as largest:
        total = model.log_prob(tokens, lengths).sum()
        total.backward()
    pairs = (length - 1) ** 2
    assert largest.max_numel <= count * pairs * components
