"""Each text of a study has a store of its own."""

import dataclasses
import json
import sys
from pathlib import Path

import pytest

from lmzoo import main
from lmzoo.data.corpus import corpus_config, open_corpus
from lmzoo.lab.analysis.tables.ranking_table import study_ranking
from lmzoo.trainables.store_name import store_folder, store_name
from tests.lab.sweep.local_sweep import sweep
from tests.toy_study import WORDS, small_study


def test_a_corpus_without_a_file_gives_its_name() -> None:
    assert store_name("toy", "captions") == "toy-captions"
    assert store_name("toy", {"name": "shakespeare_char", "split": "nanogpt"}) == (
        "toy-shakespeare_char"
    )


@pytest.mark.parametrize(
    ("path", "slug"),
    [
        ("data/My Sentences.txt.gz", "my_sentences"),
        ("Ünï.txt", "n"),
        ("a" * 60 + ".txt", "a" * 24),
        ("словарь", ""),
    ],
)
def test_the_name_of_a_file_is_readable_and_short(path: str, slug: str) -> None:
    *first, digest = store_name("toy", f"text:{path}").split("-")
    assert first == ["toy", "text", *([slug] if slug else [])]
    assert len(digest) == 6
    assert store_name("toy", {"name": "text", "path": path, "unit": "char"}).endswith(digest)


def test_files_of_one_name_in_two_folders_differ() -> None:
    specs = [f"{kind}:{folder}/t.txt" for kind in ("text", "stream") for folder in "ab"]
    assert len({store_name("toy", spec) for spec in specs}) == 4


def dry_run(study, storage: Path, monkeypatch, capsys) -> tuple[str, int]:
    """Return the store that a dry run names, and its pending runs."""
    monkeypatch.setattr("lmzoo.trainables.rows.RowPoint.seconds_per_epoch", lambda *_: 0.0)
    monkeypatch.setenv("COLUMNS", "500")
    found = []
    for options in ((), ("--json",)):
        monkeypatch.setattr(sys, "argv", ["s", "--dry-run", "--storage", str(storage), *options])
        with pytest.raises(SystemExit) as stop:
            main(study)
        out = capsys.readouterr().out
        assert not stop.value.code
        found.append(out)
    rows = json.loads(found[1])["points"]
    return Path(found[0].split(" in ")[-1].strip()).name, sum(row["runs"] for row in rows)


def test_both_texts_of_a_study_are_in_the_tables(
    sentences: Path, corpus, corpus_fields, tmp_path: Path, monkeypatch, capsys
) -> None:
    other = tmp_path / "other" / sentences.name
    other.parent.mkdir()
    lines = sentences.read_text().splitlines()
    other.write_text("\n".join(lines[::-1]).replace(WORDS[0], "zebra") + "\n")
    losses = {}
    for path in (sentences, other):
        study = dataclasses.replace(small_study(path), epochs=2)
        fields = corpus_config({**corpus_fields, "path": str(path)})
        store = store_folder(tmp_path / "runs", study.name, fields)
        assert sweep(study, open_corpus(fields), fields, store)
        assert dry_run(study, tmp_path / "runs", monkeypatch, capsys) == (store.name, 0)
        losses[path] = study_ranking(store).frame
    assert len(list((tmp_path / "runs").iterdir())) == 2
    for path, frame in losses.items():
        store = store_folder(tmp_path / "runs", "toy", corpus_config(f"text:{path}"))
        assert study_ranking(store).frame.equals(frame)
    first, second = losses.values()
    assert first["loss"].to_list() != second["loss"].to_list()
