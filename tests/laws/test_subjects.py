"""Functions, torch modules and models of transformers are audited by the probes of the zoo."""

import copy
import importlib.util
import json
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.utils import prune

import lmzoo
from lmzoo.base.errors import UserError
from tests.cases import cases, parametrize, rows

V = 11


def call_layer(module, x):
    return module.layer(x)


class Net(nn.Module):
    """An LSTM with a layer before its scores, whose call a test replaces."""

    def __init__(self, layer=None, call=None, **options):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(V, 8)
        self.lstm = nn.LSTM(8, 8, batch_first=True, **options)
        self.layer = layer or nn.Identity()
        self.call = call or call_layer
        # Both directions of an LSTM have twice the width.
        width = 8
        if options:
            width = 16
        self.output = nn.Linear(width, V)

    def forward(self, tokens):
        embedded = self.embedding(tokens)
        x = self.call(self, embedded)
        h, _ = self.lstm(x)
        return self.output(h)


class Normalised(Net):
    def forward(self, tokens):
        logits = super().forward(tokens)
        return logits.log_softmax(-1)


def counts(*, always):
    """Return a causal model whose buffer changes with each call, in training or always."""

    def call(module, x):
        if module.training or always:
            module.count += 0.1
        return x * (1 + module.count)

    model = Normalised(call=call)
    model.register_buffer("count", torch.zeros(()))
    return model


def rotated(*, leaks):
    """Return a model with the imaginary part of a rotation, which may mix in later positions."""

    def call(module, x):
        later = torch.zeros_like(x)
        if leaks:
            later = x.mean(1, keepdim=True).expand_as(x)
        numbers = torch.complex(x, later) * module.turn
        return numbers.imag

    model = Normalised(call=call)
    turn = torch.polar(torch.ones(8), torch.arange(8.0))
    model.register_buffer("turn", turn)
    return model


class Silent(Normalised):
    def train(self, mode=True):  # noqa: FBT002
        super().train(mode)
        is_refused = mode and isinstance(self.layer, nn.Tanh)
        if is_refused:
            raise RuntimeError("for inference only")


LOG_V = math.log(V)


def uniform(tokens):
    return torch.full((*tokens.shape, V), -LOG_V)


def uniform_scores(tokens, lengths):
    scored = tokens[:, 1:]
    return torch.full(scored.shape, -LOG_V)


def peeks(x, where):
    """Return log-probabilities that read the next token in some places."""
    read = F.pad(where * x[:, 1:], (0, 1))
    scores = read[..., None] * TOKENS
    return scores.log_softmax(-1)


TOKENS = torch.arange(V).double()
PLACES = torch.arange(1, 65)
NOTHING = torch.zeros(())
BELOW = torch.ones(20, 20).tril() > 0
MASK = nn.Parameter(BELOW, requires_grad=False)


def of_several(tokens):
    return [NOTHING, uniform(tokens), NOTHING]


def named(tokens):
    outputs = {"loss": NOTHING, "h": torch.ones(2, 3)}
    return outputs | {"logits": uniform(tokens)}


def rounded(tokens):
    """Return scores that depend on the number of positions, as rounding does."""
    # About the rounding of single precision.
    error = 2e-7 * tokens.shape[1] * TOKENS
    scores = uniform(tokens) + error
    return scores.log_softmax(-1)


def overwrites(tokens):
    # In place: the tokens of the caller change.
    following = tokens.add_(1) % V
    one_hot = F.one_hot(following, V).double()
    return one_hot.log_softmax(-1)


def masked(module, x):
    [mask] = module.layer
    size = x.shape[1]
    visible = mask[:size, :size].to(x)
    return visible @ x


def linear():
    return nn.Linear(8, 8)


def pruned():
    return prune.l1_unstructured(linear(), "weight", 0.3)


RIGHT = {
    "a function": lambda: uniform,
    "a function of tokens and lengths": lambda: uniform_scores,
    "one of several outputs": lambda: of_several,
    "rounding": lambda: rounded,
    "a named one": lambda: named,
    "a buffer of training": lambda: counts(always=False),
    "spectral norm": lambda: Normalised(nn.utils.spectral_norm(linear())),
    "complex weights": lambda: rotated(leaks=False),
    "a lazy layer": lambda: Normalised(nn.LazyLinear(8)),
    "pruned weights": lambda: Normalised(pruned()),
    "a frozen mask": lambda: Normalised(nn.ParameterList([MASK]), masked),
    "changed tokens": lambda: overwrites,
    "train() without a result": Silent,
}


@pytest.mark.filterwarnings("ignore")
@parametrize("kind", RIGHT)
def test_a_normalised_causal_model_passes(kind):
    model = RIGHT[kind]()
    found = lmzoo.audit(model, V, 20)
    assert found.faults == ()
    assert found.notes == ()
    reads_lengths = found.deviations["pads"] is not None
    assert reads_lengths == (model is uniform_scores)


def peeks_in_short_ones(tokens, lengths):
    """Read the next token in sequences that are shorter than 65."""
    short = torch.where(lengths < 65, lengths, 0)
    places = PLACES[: tokens.shape[1] - 1]
    return peeks(tokens, places < short[:, None])


def peeks_before_nine(tokens):
    return peeks(tokens, tokens[:, 1:] == 9)


def peeks_at_twelve(tokens):
    places = torch.arange(1, tokens.shape[1])
    return peeks(tokens, places == 12)


def normalised_over_the_batch(module, x):
    return module.layer(x.mT).mT


def too_probable(tokens):
    return torch.where(tokens == 3, -0.1, -LOG_V)


WRONG = [
    (Normalised(bidirectional=True), "future"),
    (rotated(leaks=True), "future"),
    (peeks_before_nine, "future"),
    (peeks_in_short_ones, "future"),
    (peeks_at_twelve, "future"),
    (Normalised(nn.BatchNorm1d(8), normalised_over_the_batch), "mates"),
    (Net(), "itself"),
    (too_probable, "itself"),
    (lambda tokens: uniform(tokens) + tokens.shape[1], "steps"),
    (counts(always=True), "again"),
]


@parametrize(("model", "probe"), WRONG)
def test_a_fault_is_detected_by_its_probe(model, probe):
    found = lmzoo.audit(model, V)
    deviation = found.deviations[probe]
    assert deviation > found.tolerance
    assert found.faults


def test_a_model_that_is_random_in_evaluation_is_named():
    model = Normalised(call=lambda m, x: F.dropout(x, 0.1))
    found = lmzoo.audit(model, V, 20)
    assert found.notes[0].startswith("random in evaluation")


def test_a_model_whose_tokens_decide_how_much_is_drawn_is_named():
    model = Normalised(nn.RReLU())
    found = lmzoo.audit(model, V, 20)
    said = "not compared in training: its tokens decide how many random"
    assert found.notes[0].startswith(said)
    assert found.deviations["future"] == 0
    assert found.deviations["steps"] is not None


def test_the_weights_of_the_model_stay():
    model = Net()
    before = copy.deepcopy(model.state_dict())
    found = lmzoo.audit(model, V, logits=True)
    assert found.faults == ()
    assert model.training
    for name, weight in model.state_dict().items():
        assert weight.equal(before[name])


def test_rows_and_models_of_the_zoo_are_subjects():
    built = lmzoo.build("rnn_lm", "iid", width=4)
    found = lmzoo.audit(built, length=9)
    assert found == lmzoo.audit(built.module, length=9)
    config = lmzoo.zoo.config("ngram_count")
    for model in ("rnn_lm", built, config):
        found = lmzoo.audit(model, length=12)
        assert found.faults == ()


def random_in_both(module, x):
    return F.rrelu(x, training=True)


REFUSED = [
    (uniform, None, "give the size of the vocabulary"),
    (3, V, "3 is no model"),
    (lambda tokens: tokens.float()[..., None, None], V, "returns a tensor of shape"),
    (uniform, V + 1, f"returns (2, 65, {V})"),
    (lambda tokens: tokens[:, 70], V, "fails on tokens of shape (2, 65): IndexError"),
    (lambda tokens: None, V, "returns NoneType; expected a tensor"),
    (Silent(nn.Tanh()), V, "(2, 65) in training: RuntimeError: for inference only"),
    (nn.Embedding(V, V, device="meta"), V, "on the device meta"),
    (Normalised(call=random_in_both), V, "nothing can be compared"),
    (Normalised(nn.LazyBatchNorm1d()), V, "call the lazy module once before"),
    (lambda tokens: uniform(tokens) * math.nan, V, "the model returns NaN"),
]


@pytest.mark.filterwarnings("ignore")
@parametrize(("model", "vocab", "message"), REFUSED)
def test_a_wrong_model_is_an_error_of_one_line(model, vocab, message):
    with pytest.raises(UserError) as caught:
        lmzoo.audit(model, vocab)
    words = str(caught.value)
    assert message in words
    assert "\n" not in words


FILE = """
from tests.laws.test_gradients import FAULTS, Layer
from tests.laws.test_subjects import Net, uniform
wrong, right = Layer('gru', FAULTS['16 times']), Layer('gru')
class Sized(Net):
    def __init__(self, size): super().__init__()
class Fails(Net):
    def __init__(self): raise RuntimeError("no weights")
class Exits(Net):
    def __init__(self): exit(3)
text = "gru"
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Return a file of models, right and wrong; a process imports one file of its name."""
    file = tmp_path_factory.mktemp("audited") / "audited_file.py"
    file.write_text(FILE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(file.parent)
        patch.setenv("COLUMNS", "160")
        yield file


SIZES = ("--vocab", V, "--length", 20)


def test_the_command_audits_objects_of_a_file(file, lmzoo):
    objects = (f"{file}:uniform", f"{file}:Net")
    code, out, _ = lmzoo("audit", *objects, *SIZES, "--json")
    passes, fails = json.loads(out)
    # One of both has a fault.
    assert code == 1
    assert passes["faults"] == []
    assert len(fails["faults"]) == 1


@cases("laws/cases.toml", "in_a_file", "name, expected, words")
def test_the_command_says_what_it_found_in_a_file(file, lmzoo, name, expected, words):
    subject = f"{file}:{name}"
    code, out, err = lmzoo("audit", subject, *SIZES, "--logits", "--gradients")
    assert code == expected
    # Bad input is one line of stderr; a fault is an answer.
    assert err.count("\n") == int(expected == 2)
    said = " ".join((out + err).split())
    assert words in said


HAS_TRANSFORMERS = importlib.util.find_spec("transformers") is not None


@pytest.mark.skipif(not HAS_TRANSFORMERS, reason="transformers is not installed")
def test_models_of_transformers_pass(tmp_path, lmzoo):
    import transformers  # pyright: ignore[reportMissingImports]

    sizes = rows("laws/cases.toml", "transformers")
    for name in ("Llama", "GPTNeoX", "Bamba"):
        kind = getattr(transformers, f"{name}Config")
        config = kind(vocab_size=V, **sizes)
        config.save_pretrained(tmp_path / name)
        code, out, _ = lmzoo("audit", f"hf:{tmp_path / name}", "--json")
        (found,) = json.loads(out)
        assert code == 0
        assert found["faults"] == []
        assert found["length"] == 64


PLACES_OF_LEAKS = [70, 129, 200, 257, 297]


@parametrize("place", PLACES_OF_LEAKS)
def test_a_leak_beyond_the_usual_chunks_is_found(place):
    def reads_later(_, x):
        y = x.clone()
        # A short sequence has no token at these places.
        later = x[:, place + 1 : place + 2]
        y[:, place : place + 1] += later.sum(1, keepdim=True)
        return y

    model = Net(call=reads_later)
    long = lmzoo.audit(model, V, logits=True)
    short = lmzoo.audit(model, V, length=65, logits=True)
    assert long.faults
    assert not short.faults
