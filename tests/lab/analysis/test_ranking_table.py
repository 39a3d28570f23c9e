"""The short form of a ranking: its size, its diagnoses, its last line."""

import re
from pathlib import Path

import pytest

from lmzoo.lab.analysis.ranking_table import ranking_report, study_ranking
from lmzoo.lab.analysis.render import render
from lmzoo.lab.analysis.report.page import render_report
from tests.lab.analysis.recorded import PAGES, folder_of, report_of
from tests.lab.analysis.toy_study import ToyStudy, change_lines, read_lines, write_lines

COUNTS = {"name": "ngram_count", "order": 1}


def brief(path):
    return lines_of(study_ranking(path))


def lines_of(report):
    return render(report.brief, "table", width=80).splitlines()


def doubts(toy):
    return [*study_ranking(toy.write()).warnings]


@pytest.fixture
def toy(toy):
    toy.study_json |= {"script": ["python", "s.py"], "given": ["--epochs", "3"]}
    toy.add_points(
        """
        full: 2.0  2.01  1.99
        part: 2.5  2.51  2.49
        """
    )
    return toy


def test_the_main_study_fits_a_terminal_and_ends_with_the_next_command():
    name = "gru_ablation-captions"
    folder = folder_of(name)._replace(address=Path("runs") / name)
    lines = lines_of(ranking_report(folder, report_of(name).frame))
    assert len(lines) <= 24 + 9  # curves still fall, a point is noisy, wide intervals wrap labels
    assert max(map(len, lines)) <= 80
    assert " ".join(lines[-2:]).count("runs/gru_ablation-captions") == 1


@pytest.fixture
def flat(toy):
    """A study whose runs have one validation loss, at the last epoch."""
    falling(toy, {3: 0.0}, 3)
    toy.write()
    return toy


def with_open_point(toy):
    toy.add_points("open: 2.0 2.3 2.2")
    falling(toy, {3: 0.0}, 3)
    toy.write()


def test_without_open_questions_the_report_is_next(flat):
    assert brief(flat.path)[-1] == f"next: lmzoo report {flat.path}"


def test_the_last_line_names_a_folder_beside_it(flat, monkeypatch):
    monkeypatch.chdir(flat.path.parent)
    assert brief(Path("toy"))[-1] == "toy; next: lmzoo report toy"


def test_the_last_line_decides_what_is_open(flat, monkeypatch):
    with_open_point(flat)
    monkeypatch.chdir(flat.path.parent)
    last = brief(Path("toy"))[-1]
    assert last == "toy; to decide more: python s.py --epochs 3 --until-decided"


def test_a_healthy_study_has_no_diagnosis(flat):
    assert doubts(flat) == []


@pytest.fixture
def with_counts(toy):
    """A study of which a model of counts is the best."""
    toy.add_points("count: 1.5 1.5 1.5", model=COUNTS, parameters=0)
    falling(toy, {3: 0.0}, 3)
    return toy


def test_models_above_the_unigram_are_named_first(with_counts):
    assert doubts(with_counts)[0].startswith("No point is better than cut count (1.500)")


def test_more_seeds_do_not_help_models_above_the_unigram(with_counts):
    with_open_point(with_counts)
    assert brief(with_counts.path)[-1].endswith("to train longer: python s.py --epochs 12")


def test_one_point_below_the_unigram_is_enough(with_counts):
    with_counts.add_points("good: 1.4 1.41 1.39")
    falling(with_counts, {3: 0.0}, 3)
    assert doubts(with_counts) == []


def falling(toy, above, epochs):
    """Give each run the curve of validation losses `above` its test loss: epoch -> nats."""
    for path in toy.path.glob("*/records.ndjson"):
        *_, test, end = read_lines(path)
        lines = []
        for epoch, nats in above.items():
            loss = test["token"] + nats
            lines.append({"event": "epoch", "epoch": epoch, "valid_token": loss, "seconds": 1.0})
        write_lines(path, lines + [test | {"epoch": epochs}, end | {"epoch": epochs}])
    toy.study_json["budget"]["epochs"] = epochs


def test_curves_that_still_fall_ask_for_more_epochs(toy):
    """The last doubling gained 0.2, half of the one before; the next ones gain 0.1 and 0.05."""
    falling(toy, {4: 0.6, 8: 0.2, 16: 0.0}, 16)
    said = "The curves still fall: the last doubling of the epochs brought 0.2 nats; "
    assert f"{said}raise --epochs to about 64." in doubts(toy)
    assert brief(toy.path)[-1] == "to train longer: python s.py --epochs 64"


def test_curves_that_fall_by_less_than_the_margin_ask_for_none(toy):
    # Less than the margin of 0.02.
    falling(toy, {4: 0.419, 8: 0.019, 16: 0.0}, 16)
    assert "still fall" not in " ".join(doubts(toy))
    assert "to train longer" not in brief(toy.path)[-1]


STILL_FALL = (
    "The curves still fall: the last doubling of the epochs brought 0.04 nats; raise --epochs "
    "to about 8."
)


def lead_of(toy):
    _, _, lead = render_report(toy.path).partition('class="lead">')
    return re.sub("<[^>]*>", "", lead)


def test_a_study_whose_last_epochs_gain_is_named_in_the_first_sentence(toy, no_charts):
    """The next doubling brings more than the margin, in the ranking and in the report."""
    # 0.6 of it are 0.024.
    falling(toy, {2: 0.04, 4: 0.0}, 4)
    assert doubts(toy) == [STILL_FALL]
    assert lead_of(toy).startswith(STILL_FALL)
    assert STILL_FALL in " ".join(brief(toy.path)[:3])


def test_a_study_whose_last_epochs_gain_little_is_not_doubted(toy, no_charts):
    # The next doubling brings 0.6 of it, 0.018: less than the margin.
    falling(toy, {2: 0.03, 4: 0.0}, 4)
    assert doubts(toy) == []
    assert "still fall" not in lead_of(toy)


def test_a_page_of_results_starts_with_what_makes_its_numbers_doubtful():
    """`tools/results.py --check` compares the block with the records."""
    for page in PAGES.glob("*.md"):
        text = page.read_text()
        records = set(re.findall(r"records/[\w-]+\.parquet", text))
        question = r"(?:[^<\n].*\n\n)?"
        first = re.match(rf"# .*\n\n{question}<!-- table: caveats (.*) -->\n", text)
        assert set(first[1].split() if first else ()) == records, page


@pytest.fixture
def at_an_edge(toy):
    toy.add_points("low: 2.03 2.04 2.02", edge=("lr",))
    falling(toy, {3: 0.0}, 3)
    return toy


TRIED = "edge: cut low: lr: the chosen value is the first or last one tried"


def test_an_edge_names_the_field_and_the_option(at_an_edge):
    assert doubts(at_an_edge) == [f"{TRIED}; try more (--samples 4)"]
    assert brief(at_an_edge.path)[-1] == "to tune more: python s.py --epochs 3 --samples 4"


def test_an_edge_at_a_bound_names_a_wider_range(at_an_edge):
    at_an_edge.study_json["search"]["lr"]["low"] = 0.003
    wider = "--search-space lr=0.00075:0.1:log"
    assert doubts(at_an_edge) == [f"{TRIED}, at a bound; search a wider range ({wider})"]
    assert brief(at_an_edge.path)[-1] == f"to tune more: python s.py --epochs 3 {wider}"


def test_a_command_is_not_wrapped_where_a_person_copies_it(toy):
    toy.study_json["given"] = ["--set", "corpus.path=" + "long name/" * 12]
    toy.add_points("open: 2.0 2.3 2.2")
    falling(toy, {3: 0.0}, 3)
    (line,) = [line for line in brief(toy.write()) if "to decide more" in line]
    assert line.endswith("--until-decided")


def test_a_validation_metric_that_chose_the_setting_is_said_to_have(toy):
    """A program without a test metric."""
    toy = ToyStudy(toy.path.parent / "program")
    toy.study_json |= {"asked": {"metric": "valid", "test_metric": "", "direction": "minimize"}}
    toy.add_points("full: 2.0 2.01 1.99", score="metric", program="command")
    for path in toy.path.glob("*/records.ndjson"):
        change_lines(path, "test", metric="valid")
    text = " ".join(brief(toy.write()))
    assert "valid, validation (also used to choose the setting) at epoch 3" in text
