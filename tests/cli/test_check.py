"""`lmzoo check`: the laws on a file of the user."""

from pathlib import Path

import pytest

from tests.own_part_files import CELL
from tests.own_part_files import own_parts as own_parts

MODEL = '''
from torch import nn

from lmzoo.base.config import config
from lmzoo.contract import LanguageModel, model


@model("own_bigram", family="ngram", source="a test")
class Bigram(LanguageModel):
    """Neural bigram."""

    @config
    class Config:
        """The width E."""

        width: int = 16

    def __init__(self, config, task):
        super().__init__(config, task)
        self.embedding = nn.Embedding(task.vocab, config.width)
        self.output = nn.Linear(config.width, task.vocab)

    def score_tokens(self, tokens, lengths):
        scores = self.output(self.embedding(tokens[:, :-1])).log_softmax(-1)
        return scores.gather(-1, tokens[:, 1:, None])[..., 0]

    def next_log_prob(self, prefix):
        return self.output(self.embedding(prefix[:, -1])).log_softmax(-1)
'''


def test_an_own_cell_obeys_the_laws(own_parts: Path, lmzoo) -> None:
    code, out, err = lmzoo("check", own_parts / "own_mingru.py")
    *lines, last = out.splitlines()
    assert (code, err, last) == (0, "", f"{len(lines)} laws, 0 do not hold")
    assert "holds  cell own_mingru: steps equal the scan" in lines
    assert "holds  cell own_mingru in recurrent_lm, starts=2: sums to one" in lines


@pytest.mark.parametrize(
    ("correct", "fault", "law"),
    [
        ("return torch.cat([x @", "x = x + x.mean(1, keepdim=True)\n        return torch.cat([x @",
         "outputs do not depend on later inputs"),
        ("cut=set()", "cut={'weight_c'}", "steps equal the scan: TypeError"),
    ],
)  # fmt: skip
def test_a_faulty_cell_is_detected(correct, fault, law, own_parts: Path, lmzoo) -> None:
    (own_parts / "own_fault.py").write_text(CELL.replace(correct, fault))
    code, out, _ = lmzoo("check", own_parts / "own_fault.py", "--failures")
    assert code == 1
    assert f"fails  cell own_mingru: {law}" in out
    assert "holds" not in out.replace("not hold", "")


def test_an_own_model_obeys_the_laws(own_parts: Path, lmzoo) -> None:
    (own_parts / "own_part.py").write_text(MODEL)
    code, out, _ = lmzoo("check", own_parts / "own_part.py")
    assert code == 0, out
    assert "holds  model own_bigram: advance equals next log prob" in out.splitlines()


def test_a_file_without_parts_is_one_line(own_parts: Path, refused) -> None:
    for name in ("own_gate.py", "missing.py"):
        assert refused("check", own_parts / name)
