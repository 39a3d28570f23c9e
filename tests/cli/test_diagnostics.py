"""`lmzoo logit-rank` and `lmzoo embeddings`."""

import json

import numpy as np
import pytest

from tests.cli.conftest import Call

SMALL = ("--set", "model.width=8")


def test_logit_rank_compares_rows(lmzoo: Call) -> None:
    names = ("rnn_lm", "lstm_lm", "rbf_emission")
    code, out, err = lmzoo("logit-rank", *names, *SMALL, "--sequences", 12, "--json")
    ranks = json.loads(out)
    assert code == 0
    assert "not trained: rnn_lm, lstm_lm, rbf_emission" in err
    assert [ranks[name]["rank"] for name in names[:2]] == [8, 8]
    assert ranks["rbf_emission"]["rank"] > 10
    code, out, _ = lmzoo("logit-rank", "rnn_lm", *SMALL, "--sequences", 12)
    assert out.splitlines()[1].split()[:3] == ["rnn_lm", "8", "8"]


def test_embeddings_answers_questions(lmzoo: Call) -> None:
    questions = ("--near", "dog", "--analogy", "man:men:dog", "--count", 3)
    code, out, _ = lmzoo("embeddings", "lstm_lm", *SMALL, *questions)
    assert code == 0
    assert "correlation of the norm with log count" in out
    code, out, _ = lmzoo("embeddings", "lstm_lm", *SMALL, *questions, "--json")
    found = json.loads(out)
    assert code == 0
    assert {question: len(answer) for question, answer in found["answers"].items()} == {
        "dog": 3,
        "man:men:dog": 3,
    }
    assert abs(found["norms"]["correlation"]) < 0.5  # initial embeddings know no frequency


def test_elmo_writes_vectors_in_context(lmzoo: Call, tmp_path) -> None:
    out = tmp_path / "vectors.npz"
    texts = ("--context", "a dog is running", "--context", "a man is running")
    code, printed, err = lmzoo("embeddings", "elmo", *SMALL, *texts, "--out", out)
    assert (code, printed) == (0, f"{out}\n")
    assert err == "initial weights, not trained: elmo\n"
    with np.load(out) as found:
        assert found["tokens_0"].tolist() == ["<start>", "a", "dog", "is", "running", "<end>"]
        assert found["vectors_0"].shape == found["vectors_1"].shape
        # The words differ before "is" only, so all vectors but the embedding part differ.
        assert not np.allclose(found["vectors_0"][3], found["vectors_1"][3])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("embeddings", "lstm_lm", "--near", "zyzzyva"), "'zyzzyva' is not in the vocabulary"),
        (("embeddings", "lstm_lm", "--analogy", "a:b"), "'a:b' is not of the form A:B:C"),
        (("embeddings", "pcfg"), "no table of token embeddings"),
        (
            ("embeddings", "gru", "--context", "a man"),
            "recurrent_lm has no vectors of tokens in context",
        ),
        (("embeddings", "elmo", "--context", "a zyzzyva"), "'zyzzyva' is not in the vocabulary"),
        (("logit-rank", "gru_autoencoder"), "gru_autoencoder does not predict the next token"),
    ],
)
def test_a_question_that_cannot_be_answered_is_one_line(
    lmzoo: Call, arguments: tuple[str, ...], message: str
) -> None:
    code, out, err = lmzoo(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.strip().splitlines()) == 1
