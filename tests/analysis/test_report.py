"""A study's page: complete, safe from what names hold, and whole in a browser without a network."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from lmzoo.analysis.html import Section, page
from lmzoo.analysis.load import load
from lmzoo.analysis.subprocess_cli import Answer, ask
from lmzoo.cli import curves, report
from lmzoo.errors import UserError
from tests.analysis.browser import look

ROOT = Path(__file__).parents[2]
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010804000000b51c0c02"
    "0000000b4944415478da6364f80f00010501012718e3660000000049454e44ae426082"
)


@pytest.fixture
def study(made):
    made.study["question"] = "Is a < b & 'c' <script>alert(1)</script>?"
    made.point("full", [2.0, 2.1, 2.3])
    made.point("part", [2.5, None, 2.7], leaks="sees <itself>")
    made.run("full", 10, 3.0, setting={"lr": 0.001})
    return made.write().parent / "toy"


def test_the_page_holds_every_part_and_nothing_from_outside(study):
    text = report.render_report(study, ask=False)
    for part in ("Ranking", "Curves", "Audit", "Reproduce"):
        assert f"<h2>{part}</h2>" in text
    assert text.count("<svg") == 5
    assert "<script" not in text
    assert "Is a &lt; b &amp; &#x27;c&#x27; &lt;script&gt;" in text
    assert "cut part: sees &lt;itself&gt;" in text
    assert "1 of 2 points passed" in text
    links = re.findall(r'(?:src|href|xlink:href)="([^"]*)"', text)
    assert all(link.startswith(("#", "data:")) for link in links)
    assert not re.search(r"url\((?!#|&quot;#)", text)


def test_a_heat_map_is_shown_if_there_is_one(study):
    assert "Interactions" not in report.render_report(study, ask=False)
    (study / "epistasis.png").write_bytes(PIXEL)
    text = report.render_report(study, ask=False)
    assert "<h2>Interactions</h2>" in text
    assert "data:image/png;base64,iVBORw0KGgo" in text


def test_samples_and_audit_are_of_the_first_ranked(study, monkeypatch):
    asked = []

    def sample(run, *, count=8, data_dir=None):
        asked.append((run.name, data_dir))
        return Answer("python -m lmzoo sample", "a <b> dog", ok=True)

    facts = {"name": "m", "score": "exact", "faults": [], "future": 0.25, "total": None}
    monkeypatch.setattr(report, "samples", sample)
    monkeypatch.setattr(report, "audit", lambda config: (Answer("audit it", "", ok=True), facts))
    text = report.render_report(study, data_dir=Path("there"))
    assert asked == [("full-confirm-1", Path("there"))]
    assert "a &lt;b&gt; dog" in text
    assert "2.5e-01" in text
    assert "m, exact: passes" in text


def test_an_answer_that_does_not_come_is_shown(study):
    found = ask(["sample", str(study / "nowhere")])
    assert not found.ok
    assert found.text.startswith("error: ")
    assert found.command.startswith("python -m lmzoo sample ")


def test_the_command_writes_the_page_or_one_line(study, tmp_path):
    app = typer.Typer()
    app.command()(report.main)
    done = CliRunner().invoke(app, [str(study), "--no-ask"])
    assert done.exit_code == 0, done.output
    assert (study / "report.html").read_text().startswith("<!doctype html>")
    refused = CliRunner().invoke(app, [str(tmp_path / "nowhere")])
    assert (refused.exit_code, "no folder" in refused.output) == (2, True)
    with pytest.raises(UserError, match="no metric 'words'"):
        report.render_report(study, metric="words", ask=False)


@pytest.mark.parametrize("command", [report, curves])
@pytest.mark.parametrize("out", [[], ["--out", "s3://bucket/there"]])
def test_what_cannot_be_written_into_a_bucket_is_refused_before_it_is_made(
    command, out, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "load", lambda path: pytest.fail(f"{path} was read"))
    app = typer.Typer()
    app.command()(command.main)
    done = CliRunner().invoke(app, ["s3://bucket/runs/toy", *out])
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1)
    assert "error: s3://bucket/" in done.stderr
    assert "--out" in done.stderr
    assert not [*tmp_path.iterdir()]


def test_a_study_in_a_bucket_leaves_its_page_elsewhere(study, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "load", lambda path: load(study))
    app = typer.Typer()
    app.command()(report.main)
    page = tmp_path / "new" / "page.html"
    done = CliRunner().invoke(app, ["s3://bucket/runs/toy", "--no-ask", "--out", str(page)])
    assert done.exit_code == 0, done.output
    assert "--storage s3://bucket/runs " in page.read_text()
    assert "analysis/report.py s3://bucket/runs/toy --out report.html" in page.read_text()


def test_a_browser_finds_the_page_whole(study):
    place = study / "report.html"
    place.write_text(report.render_report(study, ask=False), encoding="utf-8")
    seen = look(place)
    assert (seen.asked, seen.complaints) == ([], [])
    assert "<script>alert(1)</script>" in seen.title
    assert "cut part" in seen.text
    assert seen.width <= 1100
    assert len(seen.figures) == 5
    assert all(box["width"] > 100 and box["height"] > 40 for box in seen.figures)


def test_a_browser_tells_of_a_page_that_reaches_out(tmp_path):
    """What the test above would see of a page that is not whole."""
    place = tmp_path / "bad.html"
    body = '<img src="http://127.0.0.1:9/x.png"><script>throw Error("no")</script>'
    text = page("bad", [], [Section("x", body)])
    place.write_text(text)
    guarded = look(place)
    assert guarded.complaints  # the policy in the page's head refused both
    place.write_text(re.sub(r"<meta http-equiv[^>]*>", "", text))
    open_ = look(place)
    assert open_.asked == ["http://127.0.0.1:9/x.png"]
    assert any("no" in complaint for complaint in open_.complaints)


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(1200)
def test_the_page_of_a_real_sweep(tmp_path):
    command = ["sweeps/gru_ablation.py", "--points", "wild type,cut 4", "--epochs", "2"]
    command += ["--samples", "2", "--seeds", "2", "--set", "corpus.train=200"]
    command += ["--storage", str(tmp_path)]
    subprocess.run([sys.executable, *command], cwd=ROOT, check=True, timeout=800)
    place = tmp_path / "report.html"
    place.write_text(report.render_report(tmp_path / "gru_ablation-captions"), encoding="utf-8")
    seen = look(place)
    assert (seen.asked, seen.complaints) == ([], [])
    for part in ("Over seeds and sequences", "exact: passes", "python -m lmzoo sample"):
        assert part in seen.text
