"""What a caption must obey, written from English and not from the grammar's rules."""

import re

PEOPLE = {
    "man": "men", "woman": "women", "child": "children", "boy": "boys", "girl": "girls",
    "chef": "chefs", "waiter": "waiters", "surfer": "surfers", "lifeguard": "lifeguards",
    "cyclist": "cyclists", "tourist": "tourists", "player": "players", "coach": "coaches",
    "hiker": "hikers", "skier": "skiers", "singer": "singers", "dancer": "dancers",
}  # fmt: skip
PETS = {"dog": "dogs", "puppy": "puppies", "cat": "cats"}
SINGULAR = {**{many: one for one, many in {**PEOPLE, **PETS}.items()}, **{p: p for p in PEOPLE}}
MANY = {*PEOPLE.values(), *PETS.values()}
NOUN = "|".join({*PEOPLE, *PEOPLE.values()})
POSSESSIVE = {"man": "his", "boy": "his", "woman": "her", "girl": "her"}
OBJECT = {"his": "him", "her": "her", "their": "them"}


def be(noun: str) -> str:
    """The auxiliary that goes with the noun."""
    return "are" if noun in MANY else "is"


def faults(sentence: str) -> list[str]:
    """Everything that is wrong with the sentence; [] if nothing is."""
    found = []
    clause, _, tail = sentence.partition(" while ")
    clause = re.sub(r"^(in|on|at|near|behind) (a|the) \w+ ", "", clause)
    subjects = _subjects(clause)
    number = "are" if len(subjects) > 1 else be(subjects[0])
    plain, inner = _without_relatives(clause, number)
    found += inner

    auxiliaries = re.findall(r"\b(?:is|are)\b", plain)
    if auxiliaries != [number]:
        found.append(f"{subjects} with {auxiliaries}")
    one = subjects[0] if len(subjects) == 1 else ""
    their = POSSESSIVE.get(one, "their")
    if set(re.findall(r"\b(?:his|her|their)\b", plain)) - {their}:
        found.append(f"{subjects} does not own what is {their}")
    if tail:
        found += _tail_faults(tail, subjects, OBJECT[their])
    return found


def _subjects(clause: str) -> list[str]:
    """The noun the clause is about, or two joined by `and`."""
    joined = re.match(rf"\w+ (?:\w+ )?({NOUN}) and \w+ (?:\w+ )?({NOUN}) ", clause)
    if joined:
        return list(joined.groups())
    return re.findall(rf"\b({NOUN})\b", clause)[:1]


def _without_relatives(clause: str, number: str) -> tuple[str, list[str]]:
    """The clause without `who ...` and `that ...`, and what was wrong in these."""
    found = []
    for count, pet, verb in re.findall(r"with (a|two) (\w+) that (is|are) \w+ing", clause):
        if verb != be(pet) or (count == "two") != (pet in MANY):
            found.append(f"{count} {pet} {verb}")
    for verb in re.findall(r"who (is|are) holding a", clause):
        if verb != number:
            found.append(f"who {verb} holding")
    for noun, verb in re.findall(rf"who \w+ (?:\w+ )?({NOUN}) (is|are) \w+ing", clause):
        if verb != be(noun):
            found.append(f"who {noun} {verb}")
    relatives = (
        r" that (is|are) \w+ing",
        r" who (is|are) holding a \w+ \w+",
        rf" who \w+ (?:\w+ )?(?:{NOUN}) (is|are) \w+ing",
    )
    return re.sub("|".join(relatives), "", clause), found


def _tail_faults(tail: str, subjects: list[str], him: str) -> list[str]:
    """The tail repeats the subject's nouns, and its verb and pronoun agree."""
    found = []
    nouns = re.findall(rf"(another|other) ({NOUN})\b", tail)
    if [SINGULAR[noun] for _, noun in nouns] != [SINGULAR[subject] for subject in subjects]:
        found.append(f"{nouns} after {subjects}")
    if any((other == "other") != (noun in MANY) for other, noun in nouns):
        found.append(f"number of {nouns}")
    number = "are" if len(nouns) > 1 else be(nouns[0][1])
    words = re.sub(r"\b(him|her|them)$", "", tail).split()
    if words[-1].endswith("ing"):
        agrees = words[-2] == number
    else:
        agrees = words[-1].endswith("s") == (number == "is")
    if not agrees:
        found.append(f"{nouns} with {words[-2:]}")
    if set(re.findall(r"\b(?:him|her|them)\b", tail)) - {him}:
        found.append(f"{subjects} is not {him}")
    return found
