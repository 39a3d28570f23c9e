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
    seeds = [0.0, 0.004, 0.002, 0.003, 0.001]
    for name, at, options in (
        ("full", 3.0, {}), ("edge", 3.01, {"edge": ("lr",)}),
        ("low", 1.0, {"floor": {"token": 9.0, "sentence": 9.0}}), ("few", 3.05, {}),
        ("ahead", 2.9, {"leaks": "reads ahead"}),
        ("own", 3.2, {"program": "command"}), ("gone", 3.3, {}),
    ):  # fmt: skip
        toy.add_point(name, [at + x for x in seeds[: 2 if name == "few" else 5]], **options)  # type: ignore[arg-type]
    toy.add_point("wild", [2.96, 3.005, 2.935, 2.98, 2.94])
    toy.add_point("counts", [2.95] * 5, model=FIVE_GRAM, parameters=0)
    toy.records_path("gone-confirm-5").unlink()
    toy.study_json["points"] += [{"id": x, "label": f"cut {x}"} for x in ("later", "never")]
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
        return (
            write_figure(path, folder / f"{kind}.svg", "7.1in", "token")
            + report.answer
            + report.next_line
        )
    return render(report if kind == "explain" else report.brief or report, "table", width=80)


@pytest.mark.parametrize("kind", FORMS)
def test_every_form_has_every_caveat_the_answer_and_the_next_command(kind, planted, tmp_path):
    report = study_ranking(planted)
    text = letters(form(kind, planted, tmp_path))
    for line in PLANTED:
        assert any(own.startswith(line) for own in report.warnings), line
    assert len(report.warnings) == len(PLANTED)
    for line in (*report.warnings, report.answer, report.next_command):
        assert letters(line) in text, line
    # What nobody reads does not count: comments of LaTeX, folded lines, what stderr has.
    seen = {
        "latex": "".join(re.findall(r"\\caption\{.*", render(report, "latex"))),
        "github": render(report, "github").partition("<details>")[0],
        "csv": render(report, "csv"),
    }.get(kind)
    if seen is not None:
        assert all(letters(line) in letters(seen) for line in report.warnings)
    if kind not in ("short", "notebook", "json", "forest", "curves"):
        assert letters(report.made_by) in text


def test_json_has_keys_numbers_and_plain_minus_signs(planted):
    text = render(study_ranking(planted), "json")
    value = json.loads(text)
    assert "−" not in text
    assert value["warnings"][2] == PLANTED[2]
    assert value["next_command"] == "python s.py --epochs 12"
    assert value["account"]["runs"] == value["account"]["finished"] + 1
    assert isinstance(value["answer"], str)
