"""The commands of the page run the same study, whichever version wrote it."""

import dataclasses
import shlex
import sys
from contextlib import closing
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmzoo import Point, Study, main
from lmzoo.base.search_space import Choice, FloatRange, IntRange
from lmzoo.data.corpus import open_corpus
from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.report.facts import reproduce_commands
from lmzoo.lab.store.records import STUDY, read_json
from lmzoo.lab.study.planner import Planner
from lmzoo.lab.study.study import option, options
from lmzoo.lab.study.study_json import option_words
from lmzoo.lab.study.study_store import StudyStore
from lmzoo.trainables.resolve import corpus_config, resolve
from tests.cases import rows

SMALL = ("--set", "corpus.train=200")
PLAIN = Study(name="toy", question="?", points=(Point("wild type", "DLM46"),))


def study_of(study, options, monkeypatch):
    """Return the study that a script runs with these options."""
    studies = []

    def run(sweep, *_, **__):
        studies.append(sweep.study)
        return 0

    monkeypatch.setattr("lmzoo.lab.sweep.command.Sweep.run", run)
    monkeypatch.setattr(sys, "argv", ["sweeps/toy.py", *options])
    with pytest.raises(SystemExit) as ended:
        main(study)
    assert ended.value.code == 0
    return studies[0]


VALUES_OF = rows("lab/analysis/cases.toml", "values_of_options")
"""Field -> its value, other than the default; the value of others is 4, or the text of it."""
TEXTS_OF = {"fields": "model.norm=l2", "search": "recipe.lr=1:8"}
"""Field -> the words of its option, where these are not its value."""
STATED = {"name", "question", "points", "reference", "script", "given", "listeners"}
"""What only the script states."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Grown(Study):
    patience: int = option("Epochs without progress.", low=1, default=2)
    decay: float = option("Rate.", default=0.5)
    order_of_points: str = option("How points are sorted.", default="as given")


def command_of(study, path):
    """Return the words after the program that run again a study that has just begun."""
    fields = corpus_config(study, study.fields)
    with closing(StudyStore(path)) as store:
        Planner(study, resolve(study, open_corpus(fields), fields), store)
    python, script, *words = first_command(path)
    # A study that no script ran names none.
    assert (python, script) == (study.script or ("python", "PROGRAM.py"))
    return words


def first_command(path):
    """Return the words of the first command that runs a study again."""
    commands = reproduce_commands(path, load_study(path))
    first, *_ = commands.splitlines()
    return shlex.split(first)


def test_a_field_of_a_study_is_an_option_everywhere(tmp_path, monkeypatch):
    """It is on the command line, in study.json and in the command that runs the study again."""
    study = Grown(name="toy", question="?", points=PLAIN.points)
    stored = {field.name for field in dataclasses.fields(Grown)} - STATED
    names = sorted(stored - {"off"})  # a field is searched or off
    values = {}
    words = [*SMALL]
    for name in names:
        option = options(study)[name]
        values[name] = value_of(study, name)
        text = str(values[name])
        words += [option.flag, TEXTS_OF.get(name, text)]
        if option.switch:
            words.append(option.switch)
        assert values[name] != getattr(study, name), name
    values["fields"]["corpus.train"] = 200
    changed = study_of(study, words, monkeypatch)
    assert {name: getattr(changed, name) for name in names} == values
    # The rows of this study have a loss.
    again = replace(changed, direction="minimize")
    assert study_of(study, command_of(again, tmp_path), monkeypatch) == again
    assert read_json(tmp_path / STUDY)["asked"].keys() == stored


def value_of(study, name):
    """Return another value of an option than its default."""
    if name == "search":
        return {"recipe.lr": IntRange(1, 8)}
    if name in VALUES_OF:
        return VALUES_OF[name]
    return type(getattr(study, name))(4)


def test_a_field_that_the_study_does_not_search_is_not_listed_as_off(monkeypatch):
    assert study_of(PLAIN, ["--search-space", "model.width=off"], monkeypatch).off == ()


TEXTS = st.text("ab1.,: {}[]\"'=", min_size=1, max_size=5)
SMALL_FLOATS = st.floats(1e-6, 1e3)
LARGE_FLOATS = st.floats(1001, 1e6)
SMALL_INTEGERS = st.integers(1, 99)
LARGE_INTEGERS = st.integers(100, 999)
NUMBERS = SMALL_FLOATS | LARGE_FLOATS | SMALL_INTEGERS
PLAIN_VALUES = NUMBERS | st.none() | st.booleans()
NAMES = st.sampled_from(["a", "b"])
VALUES = st.lists(PLAIN_VALUES | NAMES, min_size=1)
RANGES = st.one_of(
    st.builds(FloatRange, SMALL_FLOATS, LARGE_FLOATS, st.booleans()),
    st.builds(IntRange, SMALL_INTEGERS, LARGE_INTEGERS, st.booleans()),
    VALUES.map(lambda values: Choice(tuple(values))),
)
FIELDS = st.sampled_from(["model.a", "recipe.b"])
NESTED = st.recursive(TEXTS | PLAIN_VALUES, st.lists, max_leaves=4)
SEARCHED = st.sampled_from(["model.c", "recipe.lr"])
OFF = "recipe.off"


@settings(max_examples=25)
@given(
    fields=st.dictionaries(FIELDS, NESTED),
    search=st.dictionaries(SEARCHED, RANGES | st.none()),
    margin=st.floats(0, 9),
    max_seeds=st.integers(0, 99),
    seeds=SMALL_INTEGERS,
)
def test_the_stored_words_give_the_same_study(fields, search, **numbers):
    study = replace(PLAIN, fields=fields, search=search, off=(OFF,), **numbers)
    searched = dict.fromkeys(list(search) + [OFF])
    plain = replace(PLAIN, search=searched)
    with pytest.MonkeyPatch.context() as patched:
        again = study_of(plain, option_words(study), patched)
    assert replace(again, script=()) == study


def test_points_without_a_chosen_setting_are_left_out(toy):
    toy.add_points(
        """
        full: 2.0
        a,b:  2.0
        """
    )
    toy.add_unconfirmed("late")
    words = first_command(toy.write())
    place = words.index("--points")
    assert words[place + 1] == "cut full,cut a,b"
