"""The rules of the captions, instantiated over scene, person and number.

    plain    a tall man in a red shirt with two dogs is washing a pot in the kitchen
    fronted  in the kitchen a man who two girls are watching is washing his pot
    tail     a boy is running in the park while two other boys in blue hats watch
    pair     a boy and a girl are running in the park while another boy and another girl rest

Number and possessive agree over any distance, the nouns after `while` are those of the
subject, and the scene weighs every choice. No string has two derivations: `with`, `who`,
`that`, `and` and `while` each attach in one place, and a place belongs to one scene.
No sentence has more than 18 words: that is what each template may spend.

This project's own, after the captions of Multi30k (Elliott et al. 2016, arXiv:1605.00459).
"""

from collections.abc import Iterable
from itertools import permutations

from lmzoo.data import captions_words as words
from lmzoo.data.captions_words import Forms, Scene, forms
from lmzoo.data.grammar import Grammar, Weights, is_nonterminal

Choices = dict[str, Weights]

NUMBERS = {"One": 2, "Many": 1}
BE = {"One": "is", "Many": "are"}
HIM = {"his": "him", "her": "her", "their": "them"}


def caption_grammar() -> Grammar:
    """The grammar of all scenes."""
    choices: Choices = {"Start": falling(f"Sentence.{name}" for name in words.SCENES)}
    for turn, (name, scene) in enumerate(words.SCENES.items()):
        choices |= within(name, scene_rules(scene, turn))
    return Grammar("Start", choices)


def within(name: str, choices: Choices) -> Choices:
    """The same rules, of nonterminals that belong to the scene of this name."""

    def own(text: str) -> str:
        return " ".join(f"{s}.{name}" if is_nonterminal(s) else s for s in text.split())

    return {own(head): {own(t): w for t, w in texts.items()} for head, texts in choices.items()}


def falling(texts: Iterable[str], turn: int = 0) -> Weights:
    """Weights 1, 1/√2, 1/√3 ... from the text at `turn` on, round to the one before it."""
    listed = tuple(texts)
    return {text: (1 + (i - turn) % len(listed)) ** -0.5 for i, text in enumerate(listed)}


def numbered(head: str, listed: str, turn: int = 0) -> Choices:
    """`Head.One` and `Head.Many`: the two forms of the words."""
    columns = zip(*forms(listed), strict=True)
    return {f"{head}.{n}": falling(column, turn) for n, column in zip(BE, columns, strict=True)}


def scene_rules(scene: Scene, turn: int) -> Choices:
    """All rules of one scene; `turn` says which words its lists begin with."""
    return {
        **sentences(scene),
        **subjects(scene, turn),
        **clothes(turn),
        **modifiers(turn),
        **acts(scene, turn),
        **others(),
        "Place": places(scene),
    }


def sentences(scene: Scene) -> Choices:
    """Who it is about, and then one of the templates."""
    people = forms(scene.people)
    share = {person: 1 / (1 + rank) for rank, person in enumerate(people)}
    single: dict[str, float] = {}
    pair: dict[str, float] = {}
    choices: Choices = {"Sentence": {"Single": 6, "Two": 1}, "Single": single, "Two": pair}
    for person in people:
        for n, weight in NUMBERS.items():
            head = f"About.{person.one}.{n}"
            choices[head] = about(person, n)
            single[head] = share[person] * weight
    for p, q in permutations(people, 2):
        head = f"Both.{p.one}.{q.one}"
        choices[head] = both(p.one, q.one)
        pair[head] = share[p] * share[q]
    return choices


def about(person: Forms, n: str) -> Weights:
    """`plain`, `fronted` and three kinds of `tail`."""
    his = words.POSSESSIVE.get(person.one, "their") if n == "One" else "their"
    subject = f"Open.{n} {person.one if n == 'One' else person.many}"
    choices = {
        f"{subject} Mod.{n} {BE[n]} Act.{his} Place": 8,
        f"Place {subject} Mod.{n} {BE[n]} Act.{his}": 4,
    }
    for m, weight in NUMBERS.items():
        same = f"another {person.one}" if m == "One" else f"Other {person.many}"
        choices |= {
            f"{subject} {BE[n]} Act.{his} Place while {same} React.{m}.{HIM[his]}": weight,
            f"{subject} Wear.{n} {BE[n]} Alone Place while {same} React.{m}.{HIM[his]}": weight,
            f"{subject} {BE[n]} Short.{his} Place while {same} Wear.{m} Stay.{m}": 2 * weight,
        }
    return choices


def both(p: str, q: str) -> Weights:
    """`pair`, without and with a tail."""
    return {
        f"Open.One {p} and Open.One {q} are Act.their Place": 2,
        f"Article {p} and Article {q} are Alone Place"
        f" while another {p} and another {q} React.Many.them": 1,
    }


def subjects(scene: Scene, turn: int) -> Choices:
    """What stands before a person's noun: one or two words."""
    return {
        "Article": {"a": 3, "the": 2},
        "Count": falling(words.COUNTS.split(), turn),
        "Look": falling(words.LOOKS.split(), turn),
        "Open.One": {"Article": 2, "Article Look": 3},
        "Open.Many": {"Count": 2, "Count Look": 3},
        **numbered("Person", scene.people),
    }


def clothes(turn: int) -> Choices:
    """What people wear: at most four words for one, three for many."""
    return {
        "Colour": falling(words.COLOURS.split(), turn),
        "Legwear": falling(words.LEGWEAR.split(), turn),
        **numbered("Garment", words.GARMENTS, turn),
        "In": {"in": 3, "wearing": 1},
        "Wear.One": {"In a Colour Garment.One": 3, "In a Garment.One": 1, "In Colour Legwear": 1},
        "Wear.Many": {"In Colour Garment.Many": 3, "In Garment.Many": 1, "In Colour Legwear": 1},
    }


def modifiers(turn: int) -> Choices:
    """What follows a subject: at most seven words, itself perhaps with a subject and verb."""
    choices: Choices = {
        "Thing": falling(words.THINGS.split(), 2 * turn),
        "Size": falling(words.SIZES.split(), turn),
        "Noise": falling(words.NOISES.split(), turn),
        "Regard": falling(words.REGARDS.split(), turn),
        "With": {"with a Thing": 2, "with a Pet.One": 1, "with two Pet.Many": 1},
        **numbered("Pet", words.PETS, turn),
    }
    for n, be in BE.items():
        choices[f"Mod.{n}"] = {
            "": 2,
            f"Wear.{n}": 3,
            "With": 2,
            f"Wear.{n} With": 1,
            "with a Pet.One that is Noise": 0.5,
            "with two Pet.Many that are Noise": 0.5,
            f"who {be} holding a Size Thing": 1,
            **{f"who Open.{m} Person.{m} {BE[m]} Regard": NUMBERS[m] / 3 for m in NUMBERS},
        }
    return choices


def acts(scene: Scene, turn: int) -> Choices:
    """What people do: `Short` at most three words, `Act` at most four."""
    choices: Choices = {
        "Alone": falling(scene.alone.split()),
        "Own.Do": falling(scene.verbs.split()),
        "Own.Thing": falling(scene.things.split()),
        "Do": falling(words.HANDLES.split(), turn),
        "Manner": falling(words.MANNERS.split(), turn),
    }
    for his in HIM:
        the = f"The.{his}"
        choices |= {
            the: {"a": 2, his: 2, "the": 1},
            f"Short.{his}": {"Alone": 1, f"Own.Do {the} Own.Thing": 1, f"Do {the} Thing": 1},
            f"Act.{his}": {
                f"Short.{his}": 1,
                f"Manner Short.{his}": 1,
                f"Own.Do {the} Size Own.Thing": 1,
                f"Do {the} Size Thing": 1,
            },
        }
    return choices


def others() -> Choices:
    """What they do who are like the subject: at most two words, `Stay` at most one."""
    choices: Choices = {
        "Other": falling(["other", "two other", "several other"]),
        **numbered("Wait", words.WAIT),
        **numbered("Watch", words.WATCH),
    }
    for m, be in BE.items():
        choices[f"Stay.{m}"] = {f"Wait.{m}": 1, f"Watch.{m}": 1}
        for him in HIM.values():
            choices[f"React.{m}.{him}"] = {
                f"Stay.{m}": 1,
                f"Watch.{m} {him}": 1,
                f"{be} Alone": 1,
            }
    return choices


def places(scene: Scene) -> Weights:
    """Where it happens, in three words that name the scene."""
    choices: dict[str, float] = {}
    for preposition, spots in scene.places.items():
        for spot, weight in falling(spots.split()).items():
            for article, share in {"the": 2, "a": 1}.items():
                choices |= {
                    f"{preposition} {article} {spot}": share * weight,
                    f"near {article} {spot}": share * weight / 4,
                    f"behind {article} {spot}": share * weight / 8,
                }
    return choices
