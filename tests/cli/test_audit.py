"""`lmzoo audit`."""

import json

from lmzoo import zoo
from lmzoo.contract import MODELS
from lmzoo.data.corpus import open_corpus
from lmzoo.laws.audit import audit_verdict
from lmzoo.train.recipe import Recipe
from lmzoo.train.run import run_config


def test_a_valid_row_passes(lmzoo):
    code, out, _ = lmzoo("audit", "DLM46", "rnn_vae", "--json")
    first, second = json.loads(out)
    assert code == 0
    assert first["name"] == "mutable_mgu_mixture"
    assert first["faults"] == []
    assert first["total"] is None
    assert second["future"] is None  # a bound has no causal token scores
    assert max(first["mates"], second["mates"]) < 1e-10


def test_a_leaking_setting_fails_with_its_fault(lmzoo, monkeypatch):
    monkeypatch.setenv("COLUMNS", "150")
    code, out, _ = lmzoo("audit", "DLM46", "--set", "model.norm=time_std")
    assert code == 1
    assert "model.norm=time_std" in out
    assert "1 with unexpected faults" in out


def test_iid_trains_rows_without_a_source(lmzoo):
    code, out, _ = lmzoo(
        "audit", "DLM46", "seq2seq", "--iid", "1", "--set", "model.width=4", "--json"
    )
    plain, conditional = json.loads(out)
    assert code == 0
    assert plain["iid"]["steps"] == 1
    assert plain["iid"]["loss"] >= plain["iid"]["floor"]
    assert conditional["iid"] is None


def test_either_rows_or_all_is_required(refused):
    for arguments in ((), ("DLM46", "--all")):
        error = refused("audit", arguments)
        assert error == "error: audit needs either names of rows or --all"
    assert "--vocab and --logits are for FILE.py" in refused("audit", "DLM46", "--vocab", "5")


def test_a_file_that_exits_is_named(refused, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "exits_file.py").write_text("raise SystemExit('no\\ndata')")
    assert "cannot be imported: SystemExit: no data (" in refused(
        "audit", f"{tmp_path}/exits_file.py:x"
    )
    (tmp_path / "sized_file.py").write_text("def net(tokens): return tokens")
    assert "--set and --iid are for rows" in refused(
        "audit", f"{tmp_path}/sized_file.py:net", "--set", "model.width=3"
    )


def test_all_audits_every_row_and_every_published_leak(lmzoo, monkeypatch):
    names = ["gpt", "mutable_mgu_mixture"]
    monkeypatch.setattr(zoo, "names", lambda: names)
    code, out, _ = lmzoo("audit", "--all", "--json")
    gpt, sound, published = json.loads(out)
    assert code == 0
    assert gpt["name"] == "gpt"
    assert not gpt["faults"]
    assert sound["name"] == published["name"] == "mutable_mgu_mixture"
    assert sound["variant"] == ""
    assert not sound["faults"]
    # Its leak is known, so it is no error.
    assert published["variant"] == "published"
    assert published["faults"]


def test_the_config_of_a_run_has_measured_leaks(monkeypatch):
    spec = {"name": "iid", "train": 4, "valid": 2, "test": 2}
    corpus = open_corpus(spec)
    sound = zoo.config("DLM46", width=6)
    config = zoo.config("DLM46", norm="time_std", width=6)
    valid = run_config(sound, Recipe(), corpus, spec, 0)
    assert valid["leaks"] == ""
    cls = MODELS["recurrent_lm"]
    monkeypatch.setattr(cls, "leaks", "")  # a model that does not declare its leak
    leaking = run_config(config, Recipe(), corpus, spec, 0)
    assert "when a later token changes" in leaking["leaks"]
    assert leaking["leaks"] == audit_verdict(config, corpus.task)
