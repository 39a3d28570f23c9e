"""A study's page: complete, escaped, and self-contained in a browser without a network."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from lmzoo.analysis import report_best
from lmzoo.analysis.html import Section, html_page
from lmzoo.analysis.report import render_report
from lmzoo.analysis.subprocess_cli import CommandResult, run_lmzoo
from tests.analysis.browser import open_page

ROOT = Path(__file__).parents[2]
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010804000000b51c0c02"
    "0000000b4944415478da6364f80f00010501012718e3660000000049454e44ae426082"
)


@pytest.fixture
def study(toy):
    toy.study_json["question"] = "Is a < b & 'c' <script>alert(1)</script>?"
    toy.add_point("full", [2.0, 2.1, 2.3])
    toy.add_point("part", [2.5, None, 2.7], leaks="sees <itself>")
    toy.add_run("full", 10, 3.0, setting={"lr": 0.001})
    return toy.write()


def test_the_page_has_every_section_and_no_external_links(study):
    text = render_report(study, use_models=False)
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


def test_a_stored_heat_map_is_shown(study):
    assert "Interactions" not in render_report(study, use_models=False)
    (study / "epistasis.png").write_bytes(PIXEL)
    text = render_report(study, use_models=False)
    assert "<h2>Interactions</h2>" in text
    assert "data:image/png;base64,iVBORw0KGgo" in text


def test_samples_and_audit_are_of_the_best_model(study, monkeypatch):
    sampled = []

    def sample(run, *, count=8, data_dir=None):
        sampled.append((run.name, data_dir))
        return CommandResult("python -m lmzoo sample", "a <b> dog", ok=True)

    audit = {"name": "m", "score": "exact", "faults": [], "future": 0.25, "total": None}
    monkeypatch.setattr(report_best, "draw_samples", sample)
    result = CommandResult("lmzoo audit", "", ok=True)
    monkeypatch.setattr(report_best, "audit_model", lambda *_: (result, audit))
    text = render_report(study, data_dir=Path("there"))
    assert sampled == [("full-confirm-1", Path("there"))]
    assert "a &lt;b&gt; dog" in text
    assert "2.5e-01" in text
    assert "m, exact: passes" in text


def test_a_failed_command_returns_its_error(study):
    result = run_lmzoo(["sample", str(study / "nowhere")])
    assert not result.ok
    assert result.text.startswith("error: ")
    assert result.command.startswith("python -m lmzoo sample ")


def test_a_browser_shows_the_complete_page_without_requests(study):
    path = study / "report.html"
    path.write_text(render_report(study, use_models=False), encoding="utf-8")
    loaded = open_page(path)
    assert (loaded.requests, loaded.messages) == ([], [])
    assert "<script>alert(1)</script>" in loaded.title
    assert "cut part" in loaded.text
    assert loaded.width <= 1100
    assert len(loaded.figures) == 5
    assert all(box["width"] > 100 and box["height"] > 40 for box in loaded.figures)


def test_a_browser_reports_a_page_that_loads_other_files(tmp_path):
    """The test above detects requests and scripts."""
    path = tmp_path / "bad.html"
    body = '<img src="http://127.0.0.1:9/x.png"><script>throw Error("no")</script>'
    text = html_page("bad", [], [Section("x", body)])
    path.write_text(text)
    assert open_page(path).messages  # the policy in the page's head refuses both
    path.write_text(re.sub(r"<meta http-equiv[^>]*>", "", text))
    loaded = open_page(path)
    assert loaded.requests == ["http://127.0.0.1:9/x.png"]
    assert any("no" in message for message in loaded.messages)


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(1200)
def test_the_page_of_a_real_sweep(tmp_path):
    command = ["sweeps/gru_ablation.py", "--points", "wild type,cut 4", "--epochs", "2"]
    command += ["--samples", "2", "--seeds", "2", "--set", "corpus.train=200"]
    command += ["--storage", str(tmp_path)]
    subprocess.run([sys.executable, *command], cwd=ROOT, check=True, timeout=800)
    path = tmp_path / "report.html"
    path.write_text(render_report(tmp_path / "gru_ablation-captions"), encoding="utf-8")
    loaded = open_page(path)
    assert (loaded.requests, loaded.messages) == ([], [])
    for part in ("Over seeds and sequences", "exact: passes", "python -m lmzoo sample"):
        assert part in loaded.text
