"""`lmzoo check`: the laws on a file of the user."""

import pytest

from tests.docs.pages import ROOT, blocks
from tests.own_part_files import CELL
from tests.own_part_files import own_parts as own_parts


def test_an_own_cell_obeys_the_laws(own_parts, lmzoo):
    code, out, err = lmzoo("check", own_parts / "own_mingru.py")
    *lines, last = out.splitlines()
    assert code == 0
    assert err == ""
    assert last == f"{len(lines)} laws, 0 do not hold"
    assert "holds  cell own_mingru: steps equal the scan" in lines
    assert "holds  cell own_mingru in recurrent_lm, starts=2: sums to one" in lines


@pytest.mark.parametrize(
    ("correct", "fault", "law"),
    [
        ("gate = affine(x, ", "x = x + x.mean(1, keepdim=True)\n        gate = affine(x, ",
         ": outputs do not depend on later inputs"),
        ("affine(x, self.w.candidate)", "x @ self.w.state",
         ", cuts=state: steps equal the scan: TypeError"),
        ("cut=set(config.cuts)", "cut=set()", ": equal functions have equal configs: 6 pairs"),
        ("z = own_gate(gate)", "z = own_gate(gate) if self.config.gated else 0.5",
         ", gated=False in recurrent_lm: every parameter learns: cell.w.gate"),
    ],
)  # fmt: skip
def test_a_faulty_cell_is_detected(correct, fault, law, own_parts, lmzoo):
    cell = CELL.replace(correct, fault)
    # The fault needs an option that the cell does not have.
    if "gated" in fault:
        cell = cell.replace("cuts: Cuts", "gated: bool = True\n        cuts: Cuts")
    (own_parts / "own_fault.py").write_text(cell)
    code, out, _ = lmzoo("check", own_parts / "own_fault.py", "--failures")
    assert code == 1
    assert f"fails  cell own_mingru{law}" in out
    assert "holds" not in out.replace("not hold", "")


def test_an_own_model_obeys_the_laws(own_parts, lmzoo):
    page = ROOT / "docs/tutorials/own_parts.md"
    model = next(block.code for block in blocks(page) if block.title == "bigram.py")
    (own_parts / "own_part.py").write_text(model)
    code, out, _ = lmzoo("check", own_parts / "own_part.py")
    assert code == 0, out
    assert "holds  model tutorial_bigram: advance equals next log prob" in out.splitlines()


def test_a_file_without_parts_is_one_line(own_parts, refused):
    for name in ("own_gate.py", "missing.py"):
        assert refused("check", own_parts / name)
