"""Every form of a ranking has the answer, all caveats, the account and the next command."""

import json
import re

import pytest

import lmzoo
from lmzoo.lab.analysis.ranking import FIVE_GRAM
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.analysis.render import csv_note, render
from lmzoo.lab.analysis.report import render_report
from lmzoo.lab.analysis.report.figure import write_figure
from tests.cases import rows
from tests.lab.analysis.toy_study import ToyStudy

PLANTED = (
    "WARNING: below the entropy of the source, which no causal density is: cut low 1.002",
    "5 of 7 models lose to the Kneser-Ney 5-gram",
    "The curves still fall: the last doubling of the epochs brought 0.15 nats; "
    "raise --epochs to about 12.",
    "WARNING: 3 lines of the test split stand in the training text",
    "WARNING: stray has no readable config.json",
    "edge: cut edge: lr: the chosen value is the first or last one tried; try more (--samples 4)",
    "missing: cut gone: number of confirm runs without a loss yet",
    "unconfirmed: cut later: no setting is chosen yet",
    "noisy: cut wild: the losses vary much more",
    "reported: cut own: the loss is what the user's program reports",
    "leaks: cut ahead: not a language model's loss: reads ahead",
    "no run yet: cut never",
)


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Return a study with every caveat that can stand beside the others."""
    toy = ToyStudy(tmp_path_factory.mktemp("planted") / "toy")
    toy.study_json |= {"script": ["python", "s.py"], "given": ["--epochs", "3"]}
    toy.study_json["data"] = {"warnings": [PLANTED[3].removeprefix("WARNING: ")]}
    # The same for each point.
    noise = [0.0, 0.004, 0.002, 0.003, 0.001]
    for name, mean, seeds, options in rows("lab/analysis/cases.toml", "planted"):
        toy.add_point(name, [mean + own for own in noise[:seeds]], **options)
    # Its losses vary by 0.07, those of the others by 0.004.
    toy.add_points("wild: 2.96 3.005 2.935 2.98 2.94")
    toy.add_points("counts: 2.95 2.95 2.95 2.95 2.95", model=FIVE_GRAM, parameters=0)
    toy.records_path("gone-confirm-5").unlink()
    for name in ("later", "never"):
        toy.add_unconfirmed(name)
    toy.add_run("later", 1, 3.0)
    (toy.path / "stray").mkdir()
    return toy.write()


def letters(text: str) -> str:
    """Return what is left of a text without marks, so that escapes and wrapped lines are equal."""
    text = re.sub(r'<span class="option">|</span>|&#3[49];', "", text)
    return re.sub(r"\W|_", "", text)


FORMS = (
    "short",
    "explain",
    "md",
    "csv",
    "json",
    "latex",
    "github",
    "page",
    "notebook",
    "forest",
    "curves",
)


def form(kind, path, folder):
    report = study_ranking(path)
    if kind in ("md", "json", "latex", "github"):
        return render(report, kind)
    if kind == "csv":
        assert all(letters(line) in letters(csv_note(report)) for line in report.warnings)
        return render(report, kind) + csv_note(report)
    if kind == "page":
        return render_report(path)
    if kind == "notebook":
        return lmzoo.rank(path)._repr_html_().replace("&#x27;", "")
    if kind in ("forest", "curves"):
        caption = write_figure(path, folder / f"{kind}.svg", "7.1in", "token")
        return caption + report.answer + report.next_line
    if kind == "short" and report.brief:
        report = report.brief
    return render(report, "table", width=80)


@pytest.fixture(scope="module")
def report(planted):
    return study_ranking(planted)


def test_a_report_has_every_caveat(report):
    assert len(report.warnings) == len(PLANTED)
    for line in PLANTED:
        assert any(warning.startswith(line) for warning in report.warnings), line


@pytest.fixture(scope="module", params=FORMS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def text(kind, planted, tmp_path_factory):
    return letters(form(kind, planted, tmp_path_factory.mktemp("form")))


def test_every_form_has_every_caveat_the_answer_and_the_next_command(report, text):
    for line in (*report.warnings, report.answer, report.next_command):
        assert letters(line) in text, line


def test_forms_that_are_kept_say_what_made_them(report, kind, text):
    if kind not in ("short", "notebook", "json", "forest", "curves"):
        assert letters(report.made_by) in text


@pytest.mark.parametrize("form", ["latex", "github", "csv"])
def test_caveats_are_where_a_reader_sees_them(report, form):
    """Not in comments of LaTeX, in folded lines or on stderr."""
    seen = render(report, form)
    if form == "latex":
        seen = "".join(re.findall(r"\\caption\{.*", seen))
    if form == "github":
        seen, _, _ = seen.partition("<details>")
    for line in report.warnings:
        assert letters(line) in letters(seen), line


def test_json_has_keys_numbers_and_plain_minus_signs(planted):
    text = render(study_ranking(planted), "json")
    value = json.loads(text)
    assert "−" not in text
    assert value["warnings"][2] == PLANTED[2]
    assert value["next_command"] == "python s.py --epochs 12"
    assert value["account"]["runs"] == value["account"]["finished"] + 1
    assert isinstance(value["answer"], str)
