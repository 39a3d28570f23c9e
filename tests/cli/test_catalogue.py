"""`lmzoo list`, `lmzoo describe`, and a first run with `lmzoo train` and `lmzoo sample`."""

import json
import math
import re

import pytest

from lmzoo import zoo
from lmzoo.cli.catalogue import OWN_FORMULAS
from lmzoo.data.corpus import CORPORA
from lmzoo.data.splits import deal
from lmzoo.lab.store.records import RunFolder
from tests.cases import cases


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("a man runs\na dog sits\ntwo men run\n" * 20)
    return path


def test_list_as_json_has_the_facts_of_every_row(printed):
    rows = json.loads(printed("list", "--json"))
    assert [row["name"] for row in rows] == zoo.names()
    aliases = []
    for row in rows:
        aliases += row["aliases"]
        assert row["family"], row["name"]
        # A row without a model cannot be built.
        assert (row["parameters"] is None) == (row["model"] is None)
    assert len(set(aliases)) == len(aliases)


def test_list_may_be_of_one_family(printed, refused):
    rows = json.loads(printed("list", "--json", "--family", "count"))
    assert {row["family"] for row in rows} == {"count"}
    assert "near: recurrent" in refused("list", "--family", "recurent")


def test_list_has_one_line_per_row(printed, monkeypatch):
    # Summaries would be broken in a narrow terminal.
    monkeypatch.setenv("COLUMNS", "120")
    out = printed("list")
    for name in zoo.names():
        assert f"\n{name} " in out
        # A summary is not cut in a pipe.
        assert zoo.row(name).summary in out


def words_of(text):
    """Return a text without the ends of its lines, which may be anywhere."""
    return " ".join(text.split())


@pytest.mark.parametrize("name", zoo.names())
def test_describe_shows_source_and_equations_of_every_row(printed, name):
    row = zoo.row(name)
    first_source = re.split("[;(]", row.source)[0].strip()
    out = printed("describe", name)
    assert first_source in words_of(out)
    if row.model is not None:
        assert " = " in out


@pytest.mark.parametrize("name", OWN_FORMULAS)
def test_describe_names_the_options_with_a_documents_own_formula_first(printed, name):
    options = OWN_FORMULAS[name]
    first_lines = printed("describe", name).splitlines()[:4]
    # Where nobody overlooks it.
    assert f"own formula of {options}" in " ".join(first_lines)
    if zoo.row(name).model:
        for option in re.findall(r"[a-z_.]+=[a-z]+", options):
            assert printed("describe", name, "--set", option)


FORGET_GATE = "f_t = σ( x_t W_xf + h_{t-1} W_hf + b_f )"


def test_describe_shows_the_equations_of_all_parts(printed):
    out = printed("describe", "DLM46")
    assert FORGET_GATE in out  # the cell
    assert "P(v | y) = Σ_z P(z | y) P(v | z)" in out  # the emission


@pytest.mark.parametrize("path", ["cell.cuts", "model.cell.cuts"])
def test_describe_shows_what_a_cut_leaves(printed, path):
    out = printed("describe", "DLM46", "--set", f"{path}=[4]")
    assert "→ cut state_to_candidate (4): (h_{t-1} ⊙ f_t) W_hh → 0" in out
    assert f"  {FORGET_GATE}" in out


@cases("cli/cases.toml", "described", "name, line")
def test_describe_states_what_is_carried_and_what_is_unused(printed, name, line):
    assert line in printed("describe", name)


@pytest.mark.parametrize("name", list(CORPORA))
def test_describe_shows_a_corpus(printed, name):
    out = printed("describe", name)
    assert out.startswith(name)
    # The source of how unknown words get into training.
    assert ("Good 1953" in out) == ("corpus.train_unk=True" in out)


def test_describe_shows_that_unknown_words_are_learned(printed):
    assert "corpus.train_unk=True" in printed("describe", "multi30k_en")


def test_describe_shows_a_recipe(printed):
    lines = printed("describe", "recipe").splitlines()
    assert "recipe.lr=0.01; search 0.001:0.1:log" in lines
    assert "recipe.clip_value=none" in lines


TEXTS = [
    ("text", "a b c\n" * 9 + "w " * 99 + "\nx y\n", ["11 lines", "1 of 11 lines", "lost"]),
    ("fasta", ">p\nMKV\n;c\n>q\nMKVL\n" * 9, ["18 records", "9 comment lines"]),
    ("pairs", "a b\tc\n" * 10 + "d\te <unk>\n" * 10, ["20 pairs", "stand in training"]),
    ("stream", "the cat\nthe dog\n" * 120, ["240 lines", "characters"]),
]


@pytest.mark.parametrize(("kind", "content", "said"), TEXTS)
def test_a_text_of_the_user_is_described(printed, tmp_path, kind, content, said):
    text = tmp_path / "own"
    text.write_text(content)
    out = printed("describe", f"{kind}:{text}")
    for part in said:
        assert part in out


def test_train_records_the_size_of_the_text_and_prints_bits(printed, text, tmp_path):
    runs = tmp_path / "runs"
    options = ("--corpus", f"text:{text}", "--epochs", "1", "--out", runs)
    out = printed("train", "ngram_count", options)
    lines = text.read_text().splitlines(keepends=True)
    _, _, tested, _ = deal(lines)
    characters = sum(len(lines[i]) for i in tested)
    (run,) = runs.iterdir()
    (test,) = [record for record in RunFolder(run).records() if record["event"] == "test"]
    # The text is ASCII.
    assert test["characters"] == test["bytes"] == characters
    nats = test["token"] * test["tokens"]
    bits = nats / math.log(2) / characters
    assert f"{bits:.4f} bits per character, {bits:.4f} per byte" in words_of(out)


TWO_CUTS = "train DLM46 --cuts 0,2 --set model.width=4 --set corpus.length=6 --epochs 2"


@pytest.fixture
def options(text, tmp_path):
    """Options of a training of a cell with two cuts."""
    return TWO_CUTS.split() + ["--corpus", f"text:{text}", "--out", tmp_path / "runs"]


@pytest.fixture
def trained(printed, options, tmp_path):
    """Return what the training printed, and the folder of the run."""
    out = printed(options)
    (folder,) = (tmp_path / "runs").iterdir()
    return out, folder


def test_train_says_what_it_has_cut(trained):
    out, folder = trained
    cell = RunFolder(folder).config["model"]["cell"]
    assert "test " in out
    assert ", cut input_to_gate (0), gate_bias (2), on text" in words_of(out)
    assert cell["cuts"] == ["gate_bias", "input_to_gate"]


def test_a_run_that_has_ended_is_not_trained_again(printed, options, trained):
    _, folder = trained
    before = (folder / "records.ndjson").read_text()
    printed(options)
    assert (folder / "records.ndjson").read_text() == before


def test_sample_reads_the_run(printed, trained):
    _, folder = trained
    first = printed("sample", folder, "--count", "5", "--seed", 3)
    again = printed("sample", folder, "--count", "5", "--seed", 3)
    other = printed("sample", folder, "--count", "5", "--seed", 4)
    assert len(first.splitlines()) == 5
    assert first == again != other
