import re
from collections import Counter
from itertools import chain, pairwise
from math import exp, isclose, log
from random import Random

import pytest
import torch

from lmzoo.base.config import to_dict
from lmzoo.contract import END, START, UNKNOWN
from lmzoo.data.captions import sample_captions, word_lengths
from lmzoo.data.captions_grammar import SCENES, caption_grammar
from lmzoo.data.corpus import CORPORA, Corpus, open_corpus
from lmzoo.data.grammar import Grammar, is_nonterminal
from tests.data.english_agreement import agreement_errors
from tests.data.inside_algorithm import string_probability
from tests.user_errors import raises_user_error

CORPUS_NAMES = ("captions", "captions_char")
SIZES = {"train": 300, "valid": 40, "test": 60}
SPLITS = tuple(SIZES)
FIRST = "in the theater many tired singers in yellow helmets are playing the dirty microphone"


@pytest.fixture(scope="module")
def corpora() -> dict[str, Corpus]:
    return {name: open_corpus({"name": name, **SIZES}) for name in CORPUS_NAMES}


@pytest.fixture(scope="module")
def samples() -> list[tuple[list[str], float]]:
    random = Random(1)
    return [caption_grammar().sample(random) for _ in range(4000)]


def with_uniform_choices(grammar: Grammar) -> Grammar:
    """Return the rules with equally likely choices, so that samples contain the rare ones."""
    rules = grammar.rules.items()
    return Grammar(grammar.start, {h: {" ".join(r.symbols): 1 for r in rs} for h, rs in rules})


def text(corpus: Corpus, split: str) -> list[str]:
    return [corpus.vocabulary.decode(row) for row in getattr(corpus, split).tokens.tolist()]


def test_no_sentence_has_two_derivations():
    for grammar in (caption_grammar(), with_uniform_choices(caption_grammar())):
        random = Random(0)
        for _ in range(60):
            words, log_prob = grammar.sample(random)
            assert isclose(string_probability(grammar, words), exp(log_prob), rel_tol=1e-9)


def test_every_nonterminal_and_word_is_reachable():
    reached, rules = {caption_grammar().start}, caption_grammar().rules
    frontier = [caption_grammar().start]
    while frontier:
        inner = {s for rule in rules[frontier.pop()] for s in rule.symbols}
        frontier += [s for s in inner - reached if is_nonterminal(s)]
        reached |= inner
    assert reached == {*rules, *caption_grammar().words}


@pytest.mark.parametrize(
    ("name", "scored"),
    [("captions", lambda words: len(words) + 1), ("captions_char", lambda w: len(" ".join(w)) + 1)],
)
def test_entropy_floors_equal_the_mean_surprise_of_samples(corpora, samples, name, scored):
    n = torch.tensor([scored(words) for words, _ in samples], dtype=torch.float64)
    surprise = torch.tensor([-log_prob for _, log_prob in samples], dtype=torch.float64)
    floor = corpora[name].floor
    for excess in (surprise - floor.token * n, surprise / n - floor.sentence):
        assert abs(excess.mean()) < 4 * excess.std() / len(samples) ** 0.5


def test_no_sentence_has_more_than_18_words(samples):
    long = max(len(words) for words, _ in samples)
    assert long == caption_grammar().lengths(lambda _: 1).longest == 18


def test_every_sentence_has_correct_agreement(samples):
    for words, _ in samples:
        assert not agreement_errors(" ".join(words))


@pytest.mark.parametrize(
    ("pattern", "other"),
    [
        (r"\bis\b", "are"),
        (r"\bare\b", "is"),
        (r"\bhis\b", "her"),
        (r"\btheir\b", "his"),
        (r"\bhim$", "them"),
        (r"(?<=another )woman", "man"),
        (r"(?<=other )boys", "girls"),
    ],
)
def test_the_agreement_check_detects_wrong_words(samples, pattern, other):
    broken = 0
    for words, _ in samples[:1000]:
        sentence = " ".join(words)
        for match in re.finditer(pattern, sentence):
            wrong = sentence[: match.start()] + other + sentence[match.end() :]
            assert agreement_errors(wrong), wrong
            broken += 1
    assert broken


def test_a_sentence_has_words_of_one_scene_only(samples):
    scene_of = {
        p: s for s, scene in SCENES.items() for ps in scene.places.values() for p in ps.split()
    }
    assert len(scene_of) == sum(len(" ".join(s.places.values()).split()) for s in SCENES.values())
    things = {t: s for s, scene in SCENES.items() for t in scene.things.split()}
    for words, _ in samples:
        (scene,) = [scene_of[word] for word in words if word in scene_of]
        assert {things[word] for word in words if word in things} <= {scene}


def test_bigram_and_unigram_entropies_are_above_the_floor(samples):
    floor = word_lengths().entropy / word_lengths().mean
    sentences = [["<start>", *words, "<end>"] for words, _ in samples]
    before = Counter(chain.from_iterable(s[:-1] for s in sentences))
    after = Counter(chain.from_iterable(s[1:] for s in sentences))
    both = Counter(chain.from_iterable(map(pairwise, sentences)))
    assert entropy(both) - entropy(before) > floor + 0.5
    assert entropy(after) > floor + 2


def entropy(counts: Counter) -> float:
    total = counts.total()
    return -sum(n / total * log(n / total) for n in counts.values())


def test_both_corpora_have_the_same_sentences(corpora):
    words, letters = corpora.values()
    for split in SPLITS:
        assert text(words, split) == text(letters, split)
    assert (words.unit, letters.unit) == ("word", "character")


@pytest.mark.parametrize("name", CORPUS_NAMES)
def test_sequences_are_complete_and_have_no_unknown_token(corpora, name):
    corpus = corpora[name]
    for split, size in SIZES.items():
        part = getattr(corpus, split)
        assert len(part) == size
        assert (part.tokens[:, 0] == START).all()
        assert (part.tokens.gather(1, part.lengths[:, None] - 1) == END).all()
        assert (part.tokens == END).sum() == size
        assert not (part.tokens == UNKNOWN).any()
        assert int(part.lengths.max()) <= corpus.task.length
    assert corpora["captions"].task.length == 20


@pytest.mark.parametrize("name", CORPUS_NAMES)
def test_default_sizes(name):
    assert to_dict(CORPORA[name].Config()) == {"train": 4000, "valid": 500, "test": 1000, "seed": 0}


@pytest.mark.parametrize("name", CORPUS_NAMES)
def test_vocabulary_does_not_depend_on_the_sample(corpora, name):
    small = open_corpus({"name": name, "train": 1, "valid": 1, "test": 1, "seed": 7})
    assert small.vocabulary == corpora[name].vocabulary
    assert small.task == corpora[name].task
    assert small.floor == corpora[name].floor


def test_the_grammar_is_pinned(corpora):
    """Results of different versions are compared, so the grammar must not change unnoticed."""
    words, letters = corpora.values()
    assert (words.task.vocab, letters.task.vocab, letters.task.length) == (251, 30, 138)
    assert (round(words.floor.token, 4), round(words.floor.sentence, 4)) == (1.4869, 1.5105)
    assert (round(letters.floor.token, 4), round(letters.floor.sentence, 4)) == (0.3021, 0.3102)
    assert sample_captions(0, "train", 1) == [FIRST.split()]


def test_the_seed_determines_the_corpus():
    sizes = {"name": "captions", "train": 30, "valid": 20, "test": 20}
    first, same, other = (open_corpus({**sizes, "seed": seed}) for seed in (3, 3, 4))
    assert first.fingerprint == same.fingerprint != other.fingerprint


def test_splits_are_independent_samples():
    samples = {split: [" ".join(s) for s in sample_captions(0, split, 30)] for split in SPLITS}
    for split, sentences in samples.items():
        rest = {s for other in SPLITS if other != split for s in samples[other]}
        assert not rest & set(sentences)
        assert [" ".join(s) for s in sample_captions(0, split, 10)] == sentences[:10]


@pytest.mark.parametrize("name", CORPUS_NAMES)
@pytest.mark.parametrize(("field", "value"), [("train", 0), ("valid", -1), ("seed", "x")])
def test_invalid_options_are_rejected(name, field, value):
    with raises_user_error(field, value):
        open_corpus({"name": name, field: value})


def test_an_unknown_option_is_rejected():
    with raises_user_error("sead"):
        open_corpus({"name": "captions_char", "sead": 1})
