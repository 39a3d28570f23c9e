"""The words of the captions: people, clothes, things, and six scenes.

Lists run from frequent to rare. `one/many` gives both numbers of a word; a plain noun
takes an s. Nouns and adjectives begin with a consonant, so that the article is "a".
"""

from dataclasses import dataclass
from typing import NamedTuple

POSSESSIVE = {"man": "his", "boy": "his", "woman": "her", "girl": "her"}
"""Whose the thing is that one person holds; everyone else's is `their`."""

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
"""What people of a relative clause do to the subject."""

HANDLES = "holding carrying cleaning dropping"
THINGS = "camera bag ball basket flower bottle bucket flag rope phone box book"
"""What is found, and done with it, in every scene."""

WATCH = "watches/watch helps/help follows/follow joins/join"
WAIT = "waits/wait smiles/smile laughs/laugh listens/listen"
"""What the others do: to the subject, or by themselves."""


@dataclass(frozen=True)
class Scene:
    """A latent topic: it couples who is there, what they do, with what, and where."""

    people: str
    alone: str
    """What people do without an object."""
    verbs: str
    """What people do to the scene's own things."""
    things: str
    places: dict[str, str]
    """Preposition -> places; a place belongs to one scene only and so names it."""


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
    """A noun or a verb in both numbers."""

    one: str
    many: str


def forms(listed: str) -> tuple[Forms, ...]:
    """Both numbers of each word in the list."""
    parted = (item.partition("/") for item in listed.split())
    return tuple(Forms(one, many or f"{one}s") for one, _, many in parted)
