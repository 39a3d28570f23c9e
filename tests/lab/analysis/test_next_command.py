"""The command that a ranking proposes can be pasted: the study that it runs has what it names."""

import shlex

import pytest

from lmzoo.lab.analysis.ranking import FIVE_GRAM
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.cli.report import report
from tests.lab.analysis.report.test_reproduce import PLAIN, study_of


def falling(toy):
    toy.add_points(full=[3.0, 3.1, 3.2], gate=[3.1, 3.2, 3.3])


def at_an_edge(toy):
    toy.add_point("full", [3.0, 3.01, 3.02])
    toy.add_point("gate", [3.0, 3.01, 3.02], edge=("lr",))


def at_a_bound(toy):
    at_an_edge(toy)
    search = {"recipe.lr": {"low": 0.001, "high": 0.003, "log": True}}
    toy.study_json["search"] = search
    toy.study_json["chosen"]["gate"] |= {"setting": {"recipe.lr": 0.003}, "edge": ["recipe.lr"]}


def with_a_missing_run(toy):
    toy.add_points(full=[3.0, 3.01, 3.02], gate=[3.0, 3.01, 3.02])
    toy.records_path("gate-confirm-3").unlink()


def undecided(toy):
    toy.add_points(full=[3.0, 3.5, 3.2, 3.9], gate=[3.6, 3.0, 3.9, 3.1])


@pytest.mark.parametrize(
    ("plant", "margin", "changed"),
    [
        (falling, 0.02, {"epochs": 12}),
        (at_an_edge, 0.5, {"samples": 4}),
        (at_a_bound, 0.5, {"search": (0.001, 0.012)}),
        (with_a_missing_run, 0.5, {}),
        (undecided, 0.3, {"until_decided": True}),
    ],
)
def test_the_study_of_the_next_command_has_what_it_names(toy, plant, margin, changed, monkeypatch):
    plant(toy)
    toy.study_json |= {"script": ["python", "sweeps/toy.py"], "given": [], "margin": margin}
    toy.write()
    words = shlex.split(study_ranking(toy.path).next_command)
    assert words[:2] == ["python", "sweeps/toy.py"]
    study = study_of(PLAIN, words[2:], monkeypatch)
    assert bool(words[2:]) == bool(changed)
    for name, value in changed.items():
        if name == "search":
            own = study.search["recipe.lr"]
            assert (own.low, own.high) == pytest.approx(value)
        elif name == "until_decided":
            assert study.max_seeds > study.seeds
        else:
            assert getattr(study, name) == value


def test_without_a_script_the_page_is_next_and_the_command_writes_it(toy, no_charts):
    toy.add_points(full=[3.0, 3.01, 3.02], gate=[3.5, 3.51, 3.52])
    *words, study = shlex.split(study_ranking(toy.path).next_command)
    assert words == ["lmzoo", "report"]
    report(study)
    assert (toy.path / "report.html").exists()


def test_a_value_at_a_bound_and_one_inside_are_said_apart(toy):
    at_a_bound(toy)
    toy.add_point("carry", [3.0, 3.01, 3.02], edge=("recipe.lr",))
    toy.study_json["chosen"]["carry"]["setting"] = {"recipe.lr": 0.002}
    edges = [text for text in study_ranking(toy.write()).warnings if text.startswith("edge")]
    assert [text.split(": ")[1] for text in edges] == ["cut gate", "cut carry"]
    assert "--search-space recipe.lr=0.001:0.012" in edges[0]
    assert edges[1].endswith("try more (--samples 4)")


def test_one_epoch_that_loses_to_counts_asks_for_epochs_and_not_for_seeds(toy):
    toy.epochs = 1
    toy.study_json["budget"]["epochs"] = 1
    toy.add_points(full=[3.0, 3.01, 3.02], gate=[3.0, 3.02, 3.01])
    toy.add_point("counts", [2.5] * 3, model=FIVE_GRAM, parameters=0)
    toy.add_point("unigram", [4.0] * 3, parameters=0)
    toy.study_json |= {"script": ["python", "s.py"], "given": ["--epochs", "1"]}
    report = study_ranking(toy.write())
    assert "lose to the Kneser-Ney 5-gram" in report.warnings[0], report.warnings
    assert report.next_command == "python s.py --epochs 4"
