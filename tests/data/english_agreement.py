"""Check the agreement of captions with rules of English, independently of the grammar."""

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
    """Return the form of `be` that agrees with the noun."""
    return "are" if noun in MANY else "is"


def agreement_errors(sentence: str) -> list[str]:
    """Return a description of every agreement error of the sentence."""
    errors = []
    clause, _, tail = sentence.partition(" while ")
    clause = re.sub(r"^(in|on|at|near|behind) (a|the) \w+ ", "", clause)
    subjects = _subjects(clause)
    number = "are" if len(subjects) > 1 else be(subjects[0])
    plain, relative_errors = _without_relatives(clause, number)
    errors += relative_errors

    auxiliaries = re.findall(r"\b(?:is|are)\b", plain)
    if auxiliaries != [number]:
        errors.append(f"{subjects} with {auxiliaries}")
    single = subjects[0] if len(subjects) == 1 else ""
    their = POSSESSIVE.get(single, "their")
    if set(re.findall(r"\b(?:his|her|their)\b", plain)) - {their}:
        errors.append(f"{subjects} with a possessive other than {their}")
    if tail:
        errors += _tail_errors(tail, subjects, OBJECT[their])
    return errors


def _subjects(clause: str) -> list[str]:
    """Return the subject of the clause, or the two subjects joined by `and`."""
    joined = re.match(rf"\w+ (?:\w+ )?({NOUN}) and \w+ (?:\w+ )?({NOUN}) ", clause)
    if joined:
        return list(joined.groups())
    return re.findall(rf"\b({NOUN})\b", clause)[:1]


def _without_relatives(clause: str, number: str) -> tuple[str, list[str]]:
    """Return the clause without relative clauses, and the errors of the relative clauses."""
    errors = []
    for count, pet, verb in re.findall(r"with (a|two) (\w+) that (is|are) \w+ing", clause):
        if verb != be(pet) or (count == "two") != (pet in MANY):
            errors.append(f"{count} {pet} {verb}")
    for verb in re.findall(r"who (is|are) holding a", clause):
        if verb != number:
            errors.append(f"who {verb} holding")
    for noun, verb in re.findall(rf"who \w+ (?:\w+ )?({NOUN}) (is|are) \w+ing", clause):
        if verb != be(noun):
            errors.append(f"who {noun} {verb}")
    relatives = (
        r" that (is|are) \w+ing",
        r" who (is|are) holding a \w+ \w+",
        rf" who \w+ (?:\w+ )?(?:{NOUN}) (is|are) \w+ing",
    )
    return re.sub("|".join(relatives), "", clause), errors


def _tail_errors(tail: str, subjects: list[str], him: str) -> list[str]:
    """Check that the tail repeats the nouns of the subject and that verb and pronoun agree."""
    errors = []
    nouns = re.findall(rf"(another|other) ({NOUN})\b", tail)
    if [SINGULAR[noun] for _, noun in nouns] != [SINGULAR[subject] for subject in subjects]:
        errors.append(f"{nouns} after {subjects}")
    if any((other == "other") != (noun in MANY) for other, noun in nouns):
        errors.append(f"number of {nouns}")
    number = "are" if len(nouns) > 1 else be(nouns[0][1])
    words = re.sub(r"\b(him|her|them)$", "", tail).split()
    if words[-1].endswith("ing"):
        agrees = words[-2] == number
    else:
        agrees = words[-1].endswith("s") == (number == "is")
    if not agrees:
        errors.append(f"{nouns} with {words[-2:]}")
    if set(re.findall(r"\b(?:him|her|them)\b", tail)) - {him}:
        errors.append(f"{subjects} with a pronoun other than {him}")
    return errors
