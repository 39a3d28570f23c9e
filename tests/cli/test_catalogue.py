"""`lmzoo list`, `lmzoo describe`, and a first run with `lmzoo train` and `lmzoo sample`."""

import json
import math

import pytest

from lmzoo import zoo
from lmzoo.data.corpus import CORPORA
from lmzoo.data.text_splits import deal
from lmzoo.lab.store.records import RunFolder


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("a man runs\na dog sits\ntwo men run\n" * 20)
    return path


def test_list_as_json_has_the_facts_of_every_row(lmzoo):
    code, out, _ = lmzoo("list", "--json")
    rows = json.loads(out)
    assert code == 0
    assert [row["name"] for row in rows] == zoo.names()
    for row in rows:
        assert row["family"]
        assert row["source"]
        assert row["summary"]
        assert (row["parameters"] is None) == (row["model"] is None)
    aliases = [alias for row in rows for alias in row["aliases"]]
    assert len(set(aliases)) == len(aliases)


def test_list_has_one_line_per_row(lmzoo, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    code, out, _ = lmzoo("list")
    assert code == 0
    assert all(any(line.startswith(name) for line in out.splitlines()) for name in zoo.names())
    assert all(zoo.row(name).summary in out for name in zoo.names())  # not cut in a pipe


@pytest.mark.parametrize("name", zoo.names())
def test_describe_shows_source_and_equations(name, lmzoo):
    code, out, _ = lmzoo("describe", name)
    assert code == 0
    assert zoo.row(name).source.split(";")[0].split("(")[0].strip() in out.replace("\n", " ")
    assert zoo.row(name).model is None or " = " in out  # its equations


def test_describe_shows_the_equations_of_all_parts(lmzoo):
    _, out, _ = lmzoo("describe", "DLM46")
    assert "f_t = σ( x_t W_xf + h_{t-1} W_hf + b_f )" in out  # the cell
    assert "P(v | y) = Σ_z P(z | y) P(v | z)" in out  # the emission


@pytest.mark.parametrize("path", ["cell.cuts", "model.cell.cuts"])
def test_describe_shows_what_a_cut_replaces(path, lmzoo):
    code, out, _ = lmzoo("describe", "DLM46", "--set", f"{path}=[4]")
    assert code == 0
    assert "→ cut state_to_candidate (4): (h_{t-1} ⊙ f_t) W_hh → 0" in out
    assert "  f_t = σ( x_t W_xf + h_{t-1} W_hf + b_f )" in out


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("DLM14", "T=20; no score depends on 5,531 of them"),
        ("DLM14", "state between steps: grows with the sequence"),
        ("ngram_count", "state between steps: the last 2 tokens"),
        ("DLM10", "state between steps: the last token"),
        ("DLM9", "state between steps: nothing"),
        ("lstm_lm", "state between steps: 64 floats"),
        ("slstm", "launches of a step grow with the length, because each token"),
        ("gated_deltanet_block", "launches of a step grow with the length, because chunks"),
    ],
)
def test_describe_states_what_is_carried_and_what_is_unused(name, line, lmzoo):
    assert line in lmzoo("describe", name)[1]


def test_describe_shows_a_corpus_and_how_unk_is_trained(lmzoo):
    for name in CORPORA:
        code, out, _ = lmzoo("describe", name)
        assert code == 0
        assert out.startswith(name)
        assert ("Good 1953" in out) == ("corpus.train_unk=True" in out)
    assert "corpus.train_unk=True" in lmzoo("describe", "multi30k_en")[1]


def test_train_states_the_share_of_unk(lmzoo, text, tmp_path):
    text.write_text(text.read_text() + "".join(f"a name{i} sits\n" for i in range(40)))
    options = ("--corpus", f"text:{text}", "--epochs", "1", "--out", tmp_path)
    assert "<unk> is" in lmzoo("train", "ngram_count", *options)[1]
    plain = lmzoo("train", "ngram_count", *options, "--set", "corpus.train_unk=false")[1]
    assert "probability is not learned" in plain.replace("\n", " ")


def test_train_records_the_size_of_the_text_and_prints_bits(lmzoo, text, tmp_path):
    out = tmp_path / "runs"
    code, printed, _ = lmzoo(
        "train", "ngram_count", "--corpus", f"text:{text}", "--epochs", "1", "--out", out
    )
    lines = text.read_text().splitlines(keepends=True)
    lines = [lines[i] for i in deal(lines)[2]]
    (run,) = out.iterdir()
    test = next(r for r in RunFolder(run).records() if r["event"] == "test")
    assert test["characters"] == test["bytes"] == sum(map(len, lines))
    bits = test["token"] * test["tokens"] / math.log(2) / test["bytes"]
    assert code == 0
    assert f"{bits:.4f} bits per character, {bits:.4f} per byte" in printed.replace("\n", " ")


def test_train_runs_once_and_sample_reads_the_run(lmzoo, text, tmp_path):
    options = ["train", "DLM46", "--corpus", f"text:{text}", "--cuts", "0,2", "--epochs", "2"]
    options += [
        "--set",
        "model.width=4",
        "--set",
        "corpus.length=6",
        "--out",
        str(tmp_path / "runs"),
    ]
    code, out, _ = lmzoo(*options)
    assert code == 0
    assert "test " in out
    assert ", cut input_to_gate (0), gate_bias (2), on text" in " ".join(out.split())
    (folder,) = (tmp_path / "runs").iterdir()
    before = (folder / "records.ndjson").read_text()
    assert lmzoo(*options)[0] == 0
    assert (folder / "records.ndjson").read_text() == before
    assert RunFolder(folder).config["model"]["cell"]["cuts"] == ["gate_bias", "input_to_gate"]

    code, out, _ = lmzoo("sample", str(folder), "--count", "5", "--seed", "3")
    assert code == 0
    assert len(out.splitlines()) == 5
    assert lmzoo("sample", str(folder), "--count", "5", "--seed", "3")[1] == out
    assert lmzoo("sample", str(folder), "--count", "5", "--seed", "4")[1] != out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["describe", "DLM99"], "no row of the zoo 'DLM99'"),
        (["describe", "lstm_mixtrue"], "near: lstm_mixture"),
        (["train", "DLM46", "--cuts", "6,7"], "h = 0 at every step"),
        (["train", "DLM47", "--set", "model.cell.mutations=[12]"], "numbers 0..11"),
        (["train", "DLM46", "--set", "recipe.lr=-1"], "lr"),
        (["train", "DLM46", "--corpus", "text:/no/file"], "/no/file"),
        (["sample", "/no/run"], "/no/run"),
        (["train"], "Missing argument"),
    ],
)
def test_invalid_input_gives_one_line_and_exit_code_2(arguments, message, lmzoo):
    code, _, err = lmzoo(*arguments)
    assert code == 2
    assert message in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("spec", "content", "said"),
    [
        ("text:{}", "a b c\n" * 9 + "w " * 99 + "\nx y\n", ("11 lines", "1 of 11 lines", "lost")),
        ("fasta:{}", ">p\nMKV\n;c\n>q\nMKVL\n" * 9, ("18 records", "9 comment lines")),
        ("pairs:{}", "a b\tc\n" * 10 + "d\te <unk>\n" * 10, ("20 pairs", "stand in training")),
        ("stream:{}", "the cat\nthe dog\n" * 120, ("240 lines", "characters")),
    ],
)
def test_a_text_of_the_user_is_described(lmzoo, tmp_path, spec, content, said):
    (tmp_path / "own").write_text(content)
    code, printed, _ = lmzoo("describe", spec.format(tmp_path / "own"))
    assert code == 0
    assert [part for part in said if part not in printed] == []


def test_rows_of_one_family_and_a_family_with_a_typo(lmzoo):
    code, out, _ = lmzoo("list", "--json", "--family", "count")
    assert (code, {row["family"] for row in json.loads(out)}) == (0, {"count"})
    code, _, err = lmzoo("list", "--family", "recurent")
    assert (code, "near: recurrent" in err) == (2, True)


def test_the_recipe_shows_fields_and_ranges_as_options_write_them(lmzoo):
    code, out, _ = lmzoo("describe", "recipe")
    assert code == 0
    assert "recipe.lr=0.01; search 0.001:0.1:log" in out.splitlines()
    assert "recipe.clip_value=none" in out.splitlines()


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("train", "LSTM"), "lstm_lm"),
        (("train", "gru", "--lr", "0.1"), "--set recipe.lr=VALUE"),
        (("train", "gru", "--batch-size", "3"), "--set recipe.batch_size=VALUE"),
        (("train", "gru", "--set", "width=64"), "model.width"),
        (("train", "gru", "--set", "recipe.btach=3"), "near: batch"),
        (("train", "gru", "--set", "recipe.learning_rate=3"), "near: lr"),
        (("train", "gru", "--set", "Recipe.lr=3"), "one of the training recipe.lr"),
        (("train", "gru", "--set", "model.widht=3"), "near: width"),
        (("train", "gru", "--corpus", "my.txt"), "text:my.txt"),
        (("describe", "lstmlm"), "near: lstm_lm"),
    ],
)
def test_a_name_that_is_nearly_right_gets_a_hint(words, hint, lmzoo):
    code, _, err = lmzoo(*words)
    assert (code, err.count("\n"), hint in err) == (2, 1, True), err


@pytest.mark.parametrize("name", ["2024", "1e5", "true"])
def test_a_file_may_have_any_name(name, lmzoo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text("a man runs\na dog sits\n" * 20)
    words = ("train", "ngram_count", "--corpus", "text", "--set", f"corpus.path={name}")
    assert lmzoo(*words)[0] == 0
