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


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("a man runs\na dog sits\ntwo men run\n" * 20)
    return path


def test_list_as_json_has_the_facts_of_every_row(lmzoo, refused):
    code, out, _ = lmzoo("list", "--json")
    rows = json.loads(out)
    assert code == 0
    assert [row["name"] for row in rows] == zoo.names()
    for row in rows:
        assert row["family"], row["name"]
        assert (row["parameters"] is None) == (row["model"] is None)
    aliases = [alias for row in rows for alias in row["aliases"]]
    assert len(set(aliases)) == len(aliases)
    code, out, _ = lmzoo("list", "--json", "--family", "count")
    assert code == 0
    assert {row["family"] for row in json.loads(out)} == {"count"}
    assert "near: recurrent" in refused("list", "--family", "recurent")


def test_list_has_one_line_per_row(lmzoo, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    code, out, _ = lmzoo("list")
    assert code == 0
    assert all(any(line.startswith(name) for line in out.splitlines()) for name in zoo.names())
    assert all(zoo.row(name).summary in out for name in zoo.names())  # not cut in a pipe


def test_describe_shows_source_and_equations_of_every_row(lmzoo):
    failed = []
    for name in zoo.names():
        code, out, _ = lmzoo("describe", name)
        row = zoo.row(name)
        source = row.source.split(";")[0].split("(")[0].strip() in out.replace("\n", " ")
        if code or not source or (row.model is not None and " = " not in out):
            failed.append(name)
    assert failed == []


@pytest.mark.parametrize("name", OWN_FORMULAS)
def test_describe_names_the_options_with_a_documents_own_formula_first(lmzoo, name):
    options = OWN_FORMULAS[name]
    assert f"own formula of {options}" in " ".join(lmzoo("describe", name)[1].splitlines()[:4])
    if zoo.row(name).model:
        for option in re.findall(r"[a-z_.]+=[a-z]+", options):
            assert lmzoo("describe", name, "--set", option)[0] == 0


def test_describe_shows_the_equations_of_all_parts_and_those_that_a_cut_leaves(lmzoo):
    _, out, _ = lmzoo("describe", "DLM46")
    assert "f_t = σ( x_t W_xf + h_{t-1} W_hf + b_f )" in out  # the cell
    assert "P(v | y) = Σ_z P(z | y) P(v | z)" in out  # the emission
    for path in ("cell.cuts", "model.cell.cuts"):
        code, out, _ = lmzoo("describe", "DLM46", "--set", f"{path}=[4]")
        assert code == 0
        assert "→ cut state_to_candidate (4): (h_{t-1} ⊙ f_t) W_hh → 0" in out
        assert "  f_t = σ( x_t W_xf + h_{t-1} W_hf + b_f )" in out


def test_describe_states_what_is_carried_and_what_is_unused(lmzoo):
    for name, line in (
        ("DLM14", "T=20; no score depends on 5,531 of them"),
        ("DLM14", "state between steps: grows with the sequence"),
        ("ngram_count", "state between steps: the last 2 tokens"),
        ("DLM10", "state between steps: the last token"),
        ("DLM9", "state between steps: nothing"),
        ("lstm_lm", "state between steps: 64 floats"),
    ):
        assert line in lmzoo("describe", name)[1], name


def test_describe_shows_a_corpus_and_a_recipe(lmzoo):
    for name in CORPORA:
        code, out, _ = lmzoo("describe", name)
        assert code == 0
        assert out.startswith(name)
        assert ("Good 1953" in out) == ("corpus.train_unk=True" in out), name
    assert "corpus.train_unk=True" in lmzoo("describe", "multi30k_en")[1]
    code, out, _ = lmzoo("describe", "recipe")
    assert "recipe.lr=0.01; search 0.001:0.1:log" in out.splitlines()
    assert "recipe.clip_value=none" in out.splitlines()


def test_a_text_of_the_user_is_described(lmzoo, tmp_path):
    for spec, content, said in (
        ("text", "a b c\n" * 9 + "w " * 99 + "\nx y\n", ("11 lines", "1 of 11 lines", "lost")),
        ("fasta", ">p\nMKV\n;c\n>q\nMKVL\n" * 9, ("18 records", "9 comment lines")),
        ("pairs", "a b\tc\n" * 10 + "d\te <unk>\n" * 10, ("20 pairs", "stand in training")),
        ("stream", "the cat\nthe dog\n" * 120, ("240 lines", "characters")),
    ):
        (tmp_path / "own").write_text(content)
        code, printed, _ = lmzoo("describe", f"{spec}:{tmp_path / 'own'}")
        assert (code, [part for part in said if part not in printed]) == (0, []), spec


def test_train_records_the_size_of_the_text_and_prints_bits(lmzoo, text, tmp_path):
    out = tmp_path / "runs"
    options = ("--corpus", f"text:{text}", "--epochs", "1", "--out", out)
    code, printed, _ = lmzoo("train", "ngram_count", *options)
    lines = text.read_text().splitlines(keepends=True)
    lines = [lines[i] for i in deal(lines)[2]]
    (run,) = out.iterdir()
    test = next(r for r in RunFolder(run).records() if r["event"] == "test")
    assert test["characters"] == test["bytes"] == sum(map(len, lines))
    bits = test["token"] * test["tokens"] / math.log(2) / test["bytes"]
    assert code == 0
    assert f"{bits:.4f} bits per character, {bits:.4f} per byte" in printed.replace("\n", " ")


def test_train_runs_once_and_sample_reads_the_run(lmzoo, text, tmp_path):
    small = ("--set", "model.width=4", "--set", "corpus.length=6", "--epochs", "2")
    corpus = ("--corpus", f"text:{text}", "--out", tmp_path / "runs")
    options = ("train", "DLM46", "--cuts", "0,2", *small, *corpus)
    code, out, _ = lmzoo(*options)
    assert code == 0
    assert "test " in out
    assert ", cut input_to_gate (0), gate_bias (2), on text" in " ".join(out.split())
    (folder,) = (tmp_path / "runs").iterdir()
    before = (folder / "records.ndjson").read_text()
    assert lmzoo(*options)[0] == 0
    assert (folder / "records.ndjson").read_text() == before
    assert RunFolder(folder).config["model"]["cell"]["cuts"] == ["gate_bias", "input_to_gate"]
    first = lmzoo("sample", folder, "--count", "5", "--seed", 3)[1]
    again = lmzoo("sample", folder, "--count", "5", "--seed", 3)[1]
    other = lmzoo("sample", folder, "--count", "5", "--seed", 4)[1]
    assert len(first.splitlines()) == 5
    assert first == again != other
