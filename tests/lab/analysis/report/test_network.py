"""The network, the data and the recipe of a page say what a reader needs to rebuild the study."""

from pathlib import Path

import pytest

from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.report.network import (
    baseline_points,
    cut_points,
    data_section,
    network_section,
)
from lmzoo.lab.analysis.report.page import terms
from lmzoo.lab.analysis.report.recipe import recipe_section
from lmzoo.lab.analysis.report.summary import answer_lists, choice_sentences, summary
from lmzoo.lab.analysis.verdict_lines import verdict_groups
from tests.lab.analysis.recorded import folder_of, frame_of


@pytest.fixture(scope="module")
def words():
    return folder_of("reference-words"), frame_of("reference-words")


def test_the_network_has_every_part_and_the_base_equations_of_every_cell(words):
    text = network_section(words[0])
    for line in (
        "x_t = N(e(s_{t-1}))",
        "N(x) = x · √E / ‖x‖",
        "P(v | y) = Σ_z P(z | y) P(v | z)",
        "h_t = (1 − f_t) ⊙ h_{t-1} + f_t ⊙ c_t",
        "n_t = tanh( x_t W_in + b_in + r_t ⊙ (h_{t-1} W_hn + b_hn) )",
        "= f ⊙ c_{t-1} + i ⊙ g",
        "= o ⊙ tanh(c_t)",
        "h_t = tanh(a_t)",
        "q_t = h_{t-1}\nf_t = σ( q_t W_hf )\ng_t = tanh( x_t W_xh )",
        "the input x_t reaches the output through h_t only",
    ):
        assert line in text, line
    assert "The cell of &#39;MGRU&#39;, in the same network" in text


def test_cuts_and_other_models_are_listed_apart(words):
    folder, ranked = words
    text = answer_lists(verdict_groups(ranked), set(cut_points(folder)))
    equivalent = text.partition('class="answer worse"')[0]
    cuts, others = equivalent.split("other models")
    assert "cut state_to_gate (1) (0.000 to 0.019)" in cuts
    assert "GRU (−0.016 to 0.002)" in others
    assert "cut " not in others


def test_absolute_losses_of_count_models_are_in_the_summary(words):
    folder, ranked = words
    text = " ".join(summary(folder, ranked))
    assert "'wild type' has 3.653, a perplexity of 38.59" in text
    assert "For comparison: Kneser-Ney 5-gram 3.822; unigram count 5.632." in text
    assert len(baseline_points(folder)) == 2


def test_the_data_are_described_by_the_corpus(words):
    text = data_section(*words)
    assert "English captions of photographs, written by people" in text
    assert "are cut, not dropped" in text
    assert "12,648 tokens of 1,000 sequences" in text


def test_the_recipe_has_the_installation_one_commit_and_relative_paths(words):
    folder, _ = words
    text = recipe_section(Path("/secret/place/words"), folder)
    assert "secret" not in text
    assert "lmzoo report runs/reference-multi30k_en" in text
    assert "In a clone of the repository of lmzoo at commit b747778;" in text
    assert "93 runs at b747778 and 87 runs at 5a47297" in text
    for cell in ("adam", "0.01, chosen by tuning", "cosine", "1, 2, 3, 4, 5"):
        assert f">{cell}</td>" in text


def test_a_choice_that_is_not_the_lowest_loss_is_said(toy):
    """The chosen setting of the toy study is lr=0.003."""
    toy.study_json["search"] = {"lr": {"low": 1e-4, "high": 0.1, "log": True}}
    toy.add_point("full", [2.0, 2.1])
    toy.study_json["chosen"]["full"]["setting"] = {"lr": 0.003}
    toy.add_run("full", 10, 3.0, setting={"lr": 0.003})
    toy.add_run("full", 11, 3.1, setting={"lr": 0.01})
    text = " ".join(choice_sentences(load_study(toy.write())))
    assert "the one with the lowest validation loss" in text
    assert "At every point it also has the lowest measured loss." in text
    toy.add_run("full", 12, 2.9, setting={"lr": 0.02})
    text = " ".join(choice_sentences(load_study(toy.write())))
    assert "At 1 of 1 points the chosen value is not the one with the lowest measured loss" in text


def test_only_terms_of_the_page_are_listed():
    text = terms("<p>Each point has a <b>seed</b>.</p><script>pack</script>")
    assert "<dt>point</dt>" in text
    assert "<dt>seed</dt>" in text
    assert "<dt>pack</dt>" not in text
    assert "<dt>bound</dt>" not in text
