"""`lmzoo gates` for rows and trained runs."""

import json


def test_training_changes_the_gates_of_a_row(lmzoo, tmp_path) -> None:
    code, out, _ = lmzoo("gates", "gru", "--json", "--set", "model.width=8")
    initial = json.loads(out)
    assert code == 0
    assert [gate["name"] for gate in initial["gates"]] == ["r", "z"]
    assert initial["heads"] == initial["edges"] == []

    text = tmp_path / "text.txt"
    text.write_text("a man runs\na dog sits\ntwo men run\n" * 20)
    small = ["--set", "model.width=8", "--set", "corpus.length=6", "--set", "recipe.lr=0.3"]
    out_folder = ["--out", str(tmp_path / "runs"), "--epochs", "3"]
    assert lmzoo("train", "gru", "--corpus", f"text:{text}", *small, *out_folder)[0] == 0
    (folder,) = (tmp_path / "runs").iterdir()
    code, out, _ = lmzoo("gates", str(folder), "--json")
    trained = json.loads(out)
    assert code == 0
    # Three epochs with a large learning rate open and close gates that are half open initially.
    assert all(
        new["spread"] > 2 * old["spread"]
        for old, new in zip(initial["gates"], trained["gates"], strict=True)
    )
    assert len(trained["states"][0]["norms"][0]) == 4  # <start> a man runs [<end>]


def test_tables_show_gates_and_attention(lmzoo) -> None:
    code, out, _ = lmzoo("gates", "hm_lstm", "--set", "model.width=8")
    assert code == 0
    assert any(line.split()[:3] == ["cell", "z", "1"] for line in out.splitlines())
    code, out, _ = lmzoo("gates", "gpt", "--set", "model.width=8")
    assert code == 0
    assert "entropy" in out
    assert "edges per sequence" in out


def test_a_row_without_cells_and_attention_is_rejected(lmzoo) -> None:
    code, out, err = lmzoo("gates", "ngram_log_bilinear")
    assert (code, out, err.count("error: ")) == (2, "", 1)
    assert "ngram_log_bilinear has neither a recurrent cell nor attention" in err
