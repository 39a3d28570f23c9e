"""The words of the captions: people, clothes, things and six scenes.

Every list is sorted from frequent to rare. `singular/plural` gives both forms of a word; without
a slash, the plural is the singular and s. Nouns and adjectives begin with a consonant, so the
article is always "a".
"""

from dataclasses import dataclass
from typing import NamedTuple

POSSESSIVE = {"man": "his", "boy": "his", "woman": "her", "girl": "her"}
"""Possessive pronoun of one person. All others, and groups, have `their`."""

LOOKS = "young little tall smiling bearded happy tired shirtless blond friendly"
COUNTS = "two three some the several many"
COLOURS = "red blue white black green yellow pink purple brown grey"
GARMENTS = "shirt hat jacket dress/dresses coat helmet"
LEGWEAR = "jeans shorts boots socks"
PETS = "dog puppy/puppies cat"
NOISES = "barking sleeping jumping waiting"
SIZES = "small big large dirty new broken wooden heavy cheap"
MANNERS = "slowly quietly happily carefully quickly calmly"
REGARDS = "watching following helping filming teaching calling"
"""What the people of a relative clause do to the subject."""

HANDLES = "holding carrying cleaning dropping"
THINGS = "camera bag ball basket flower bottle bucket flag rope phone box book"
"""Things, and what is done with them, of every scene."""

WATCH = "watches/watch helps/help follows/follow joins/join"
WAIT = "waits/wait smiles/smile laughs/laugh listens/listen"
"""What other people do: to the subject (WATCH) or on their own (WAIT)."""


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


SCENES = {
    "kitchen": Scene(
        people="woman/women chef man/men waiter girl child/children boy",
        alone="cooking eating talking standing laughing baking",
        verbs="cutting washing tasting",
        things="carrot cake pot pan tomato",
        places={"in": "kitchen restaurant", "at": "table stove"},
    ),
    "beach": Scene(
        people="boy surfer child/children girl man/men woman/women lifeguard",
        alone="swimming running surfing relaxing standing playing",
        verbs="pushing washing pulling",
        things="surfboard boat net sandcastle towel",
        places={"on": "beach dock", "in": "harbor", "at": "pier"},
    ),
    "street": Scene(
        people="man/men cyclist woman/women tourist boy girl child/children",
        alone="walking talking waiting singing sitting eating",
        verbs="riding pushing fixing",
        things="bicycle cart scooter skateboard newspaper",
        places={"on": "street sidewalk", "in": "city", "at": "market"},
    ),
    "park": Scene(
        people="boy girl player child/children man/men woman/women coach/coaches",
        alone="playing running sitting jumping laughing walking",
        verbs="throwing kicking chasing",
        things="frisbee kite stick football hoop",
        places={"in": "park garden", "on": "field bench"},
    ),
    "mountain": Scene(
        people="man/men hiker skier woman/women child/children boy girl",
        alone="climbing skiing walking resting camping standing",
        verbs="pulling building fixing",
        things="sled tent backpack snowman fence",
        places={"on": "mountain slope", "in": "forest valley"},
    ),
    "stage": Scene(
        people="singer woman/women dancer man/men girl child/children boy",
        alone="singing dancing performing playing talking jumping",
        verbs="playing tuning testing",
        things="guitar violin microphone drum trumpet",
        places={"on": "stage platform", "in": "theater", "at": "concert"},
    ),
}


class Forms(NamedTuple):
    """The singular and plural of a noun or verb."""

    singular: str
    plural: str


def parse_forms(words: str) -> tuple[Forms, ...]:
    """Return both forms of each word of a list."""
    items = (item.partition("/") for item in words.split())
    return tuple(Forms(singular, plural or f"{singular}s") for singular, _, plural in items)
