"""Captions: sentences sampled from a known grammar, so the entropy floor is known exactly.

    captions        by word:       <start> ≤18 words <end>              T = 20
    captions_char   by character:  <start> the same sentences <end>     T from the grammar

No sentence has two derivations, so −log P(sentence) is that of its derivation
and both entropy floors are exact expectations under the grammar. Each split is sampled from its
own random stream. Both corpora have the same sentences. The grammar was written for this project
and has its licence, MIT.

    plain    a tall man in a red shirt with two dogs is washing a pot in the kitchen
    fronted  in the kitchen a man who two girls are watching is washing his pot
    tail     a boy is running in the park while two other boys in blue hats watch
    pair     a boy and a girl are running in the park while another boy and another girl rest

Number and possessive agree over any distance, the nouns after `while` repeat those of the subject,
and the scene determines the weights of every choice. `with`, `who`, `that`, `and` and `while` each
attach at one position only, and a place belongs to one scene only. A sentence has at most 18 words;
the docstrings state the maximum for each part.

Every list of words is sorted from frequent to rare. `singular/plural` gives both forms of a word;
without a slash, the plural is the singular and s. Nouns and adjectives begin with a consonant, so
the article is always "a".

Written for this project, modelled on the captions of Multi30k (Elliott et al. 2016,
arXiv:1605.00459).
"""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from pathlib import Path
from random import Random
from typing import ClassVar, NamedTuple

from lmzoo.base.seeds import derive_seed
from lmzoo.data.corpus import (
    CORPORA,
    SPLITS,
    Corpus,
    CorpusSource,
    DrawnConfig,
    EntropyFloor,
    Sequences,
)
from lmzoo.data.grammar import Grammar, LengthTable, Weights, is_nonterminal
from lmzoo.data.sequences import encode
from lmzoo.data.vocabulary import SPECIALS, Vocabulary

POSSESSIVE = {"man": "his", "boy": "his", "woman": "her", "girl": "her"}
"""Possessive pronoun of one person. All others, and groups, have `their`."""


@dataclass(frozen=True)
class Scene:
    """A latent topic, which couples people, actions, things and places."""

    people: str
    alone: str
    """Verbs without an object."""
    verbs: str
    """Verbs for the things of the scene."""
    things: str
    places: dict[str, str]
    """Preposition -> places. A place belongs to one scene only and so identifies it."""


FOLDER = Path(__file__).parent
SCENES: dict[str, Scene] = {}
# Data, not code: words of a scene are edited without Python.
for _name, _fields in tomllib.loads((FOLDER / "captions.toml").read_text()).items():
    SCENES[_name] = Scene(**_fields)
RULES = tomllib.loads((FOLDER / "caption_rules.toml").read_text())
"""Nonterminal -> right-hand sides with weights, or word list; the file says what is filled in."""


class Forms(NamedTuple):
    """The singular and plural of a noun or verb."""

    singular: str
    plural: str

    def of(self, n: str) -> str:
        """Return the form for a number."""
        if n == "One":
            return self.singular
        return self.plural


def parse_forms(words: str) -> tuple[Forms, ...]:
    """Return both forms of each word of a list."""
    forms = [word.partition("/") for word in words.split()]
    # Regular plurals need not be written.
    return tuple(Forms(singular, plural or f"{singular}s") for singular, _, plural in forms)


Choices = dict[str, Weights]
"""Nonterminal -> weighted right-hand sides, as `Grammar` reads them."""

NUMBERS = {"One": 2, "Many": 1}
BE = {"One": "is", "Many": "are"}
HIM = {"his": "him", "her": "her", "their": "them"}
AGREEMENTS = []
for _n, _be in BE.items():
    for _his, _him in HIM.items():
        AGREEMENTS.append({"n": _n, "be": _be, "his": _his, "him": _him})
"""What is filled in for the number of a subject and for an owner."""


@cache
def caption_grammar() -> Grammar:
    """Return the grammar of all scenes. It is built once per process."""
    choices: Choices = {"Start": falling_weights(f"Sentence.{name}" for name in SCENES)}
    # Scenes differ in which of their words are frequent.
    for offset, (name, scene) in enumerate(SCENES.items()):
        choices |= add_scene_suffix(name, scene_rules(scene, offset))
    return Grammar("Start", choices)


def add_scene_suffix(name: str, choices: Choices) -> Choices:
    """Return the rules with nonterminals that belong to the scene of this name."""

    def rename(text: str) -> str:
        symbols = text.split()
        for i, symbol in enumerate(symbols):
            # Each scene has its own words behind the same names.
            if is_nonterminal(symbol):
                symbols[i] = f"{symbol}.{name}"
        return " ".join(symbols)

    found = {}
    for head, texts in choices.items():
        found[rename(head)] = {rename(text): weight for text, weight in texts.items()}
    return found


def falling_weights(texts: Iterable[str], offset: int = 0) -> Weights:
    """Return the weights 1, 1/√2, 1/√3 ... of the texts, in cyclic order from index `offset`."""
    choices = [text.replace("_", " ") for text in texts]
    count = len(choices)
    # As in natural text, few words are frequent: weights fall with the root of the rank.
    return {text: (1 + (i - offset) % count) ** -0.5 for i, text in enumerate(choices)}


def scene_rules(scene: Scene, offset: int) -> Choices:
    """Return all rules of one scene; its word lists begin at index `offset`."""
    choices = sentence_rules(scene)
    choices |= shared_rules(scene, offset)
    choices["Place"] = place_weights(scene)
    return choices


def sentence_rules(scene: Scene) -> Choices:
    """Choose the people of the sentence, then one of the templates."""
    people = parse_forms(scene.people)
    share = {person: 1 / (1 + rank) for rank, person in enumerate(people)}
    single = {}
    pair = {}
    choices: Choices = {
        "Sentence": {"Single": 6, "Two": 1},
        "Single": single,
        "Two": pair,
    }
    for person in people:
        for n, weight in NUMBERS.items():
            head = f"About.{person.singular}.{n}"
            choices[head] = single_subject_templates(person, n)
            single[head] = share[person] * weight
    # Two different people: `another man` of the tail must not be one of them.
    for p, q in permutations(people, 2):
        head = f"Both.{p.singular}.{q.singular}"
        choices[head] = pair_templates(p.singular, q.singular)
        pair[head] = share[p] * share[q]
    return choices


def single_subject_templates(person: Forms, n: str) -> Weights:
    """Return the templates `plain`, `fronted` and three kinds of `tail`."""
    his = "their"
    if n == "One":
        his = POSSESSIVE.get(person.singular, "their")
    subject = f"Open.{n} {person.of(n)}"
    choices = {
        f"{subject} Mod.{n} {BE[n]} Act.{his} Place": 8,
        f"Place {subject} Mod.{n} {BE[n]} Act.{his}": 4,
    }
    for m, weight in NUMBERS.items():
        if m == "One":
            same = f"another {person.singular}"
        else:
            same = f"Other {person.plural}"
        choices |= {
            f"{subject} {BE[n]} Act.{his} Place while {same} React.{m}.{HIM[his]}": weight,
            f"{subject} Wear.{n} {BE[n]} Alone Place while {same} React.{m}.{HIM[his]}": weight,
            f"{subject} {BE[n]} Short.{his} Place while {same} Wear.{m} Stay.{m}": 2 * weight,
        }
    return choices


def pair_templates(p: str, q: str) -> Weights:
    """Return the template `pair`, without and with a tail."""
    return {
        f"Open.One {p} and Open.One {q} are Act.their Place": 2,
        f"Article {p} and Article {q} are Alone Place"
        f" while another {p} and another {q} React.Many.them": 1,
    }


def shared_rules(scene: Scene, offset: int) -> Choices:
    """Return the rules of `caption_rules.toml` with the words of the scene."""
    choices = {}
    for head, rule in RULES.items():
        for agreement in AGREEMENTS:
            if "words" in rule:
                words = rule["words"].format(**vars(scene))
                texts = words.split()
                if "{n}" in head:
                    texts = [forms.of(agreement["n"]) for forms in parse_forms(words)]
                own = falling_weights(texts, offset * rule.get("turn", 0))
            else:
                # A rule of templates has its own weights.
                own = {text.format(**agreement): weight for text, weight in rule.items()}
            choices[head.format(**agreement)] = own
    return choices


def place_weights(scene: Scene) -> Weights:
    """Return the places: three words that identify the scene."""
    choices = {}
    for preposition, spots in scene.places.items():
        for spot, weight in falling_weights(spots.split()).items():
            for article, share in {"the": 2, "a": 1}.items():
                choices |= {
                    f"{preposition} {article} {spot}": share * weight,
                    f"near {article} {spot}": share * weight / 4,
                    f"behind {article} {spot}": share * weight / 8,
                }
    return choices


@cache
# Cached: the table of all lengths takes longer than all samples of a small corpus.
def scored_lengths(*, by_character: bool) -> LengthTable:
    """Return the table of the scored tokens of a sentence.

    By word, they are the words and `<end>`; by character, those of each word, and a blank or
    `<end>` after it.
    """
    if by_character:
        # A space, or the end, follows every word.
        return caption_grammar().lengths(lambda word: len(word) + 1)
    # The end of the caption.
    return caption_grammar().lengths(lambda _: 1).shifted(1)


def sample_captions(seed: int, split: str, count: int) -> list[list[str]]:
    """Return the first `count` sentences of this split, as words."""
    random = Random(derive_seed(seed, "captions", split))
    return [caption_grammar().sample(random)[0] for _ in range(count)]


@CORPORA("captions")
class Captions(CorpusSource):
    """Sentences like image captions by word, generated by a grammar of this project (MIT licence).

    The three splits are independent samples. No sentence is cut, and the vocabulary is that of the
    grammar, so there are no unknown words. The entropy is known exactly.
    """

    Config = DrawnConfig
    by_character: ClassVar[bool] = False

    def load(self) -> Corpus:
        lengths = scored_lengths(by_character=self.by_character)
        tokens = caption_grammar().words
        joiner = " "
        unit = "word"
        if self.by_character:
            tokens = (" ",) + tuple(sorted(set("".join(tokens))))
            joiner = ""
            unit = "character"
        vocabulary = Vocabulary(SPECIALS + tokens, joiner=joiner)

        def part(split: str) -> Sequences:
            count = getattr(self.config, split)
            rows: list[Any] = sample_captions(self.config.seed, split, count)
            if self.by_character:
                rows = [" ".join(words) for words in rows]
            return encode(rows, vocabulary, length=lengths.longest + 1, end=True)[0]

        # Each part has a seed of its own: a larger one does not change the others.
        train, valid, test = map(part, SPLITS)
        # Known exactly: the grammar gives the probability of every caption.
        floor = EntropyFloor(lengths.entropy / lengths.mean, lengths.entropy_per_unit)
        return Corpus(
            self.name,
            vocabulary,
            train,
            valid,
            test,
            floor=floor,
            unit=unit,
            source="sampled from the grammar of lmzoo.data.captions; MIT",
        )


@CORPORA("captions_char")
class CaptionCharacters(Captions):
    """The generated sentences of `captions` by character; the blank is a token.

    No sentence is cut, no character is unknown, and the entropy is known exactly. MIT licence.
    """

    by_character = True
