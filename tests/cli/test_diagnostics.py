"""`lmzoo logit-rank` and `lmzoo embeddings`."""

import json

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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("embeddings", "lstm_lm", "--near", "zyzzyva"), "'zyzzyva' is not in the vocabulary"),
        (("embeddings", "lstm_lm", "--analogy", "a:b"), "'a:b' is not of the form A:B:C"),
        (("embeddings", "pcfg"), "no table of token embeddings"),
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
