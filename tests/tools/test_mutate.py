"""Planted faults: each kind, where none is planted, and the order of the tests."""

from pathlib import Path

import mutate

ROOT = Path(__file__).parents[2]
SOURCE = '''
LIMIT = 3

def loss(x: Float[Tensor, "3"], size: int = 2) -> float:
    """Return 4 ≤ 5."""
    y: Float[Tensor, "3"] = -x if x < size and not x > 0 else 0.5 + 1e-9
    if x:
        raise UserError(f"{x + 1} is above", 2)
    z = 9  # no mutation
    return [i for i in y if "µ" != i]

class Part:
    limit = 3
    def __repr__(self): return self.x + 1
    def step(self): return self.x is None
'''


def test_faults_are_inside_functions_and_outside_messages_and_types():
    faults = mutate.faults_of("part.py", SOURCE)
    assert {(fault.line, fault.before, fault.after) for fault in faults} == {
        (4, "2", "3"),
        (6, "x < size and (not x > 0)", "x < size or not x > 0"),
        (6, "x < size and (not x > 0)", "not (x < size and (not x > 0))"),
        (6, "x < size", "x > size"),
        (6, "x > 0", "x >= 0"),
        (6, "0", "1"),
        (6, "not x > 0", "x > 0"),
        (6, "-x", "x"),
        (6, "0.5 + 1e-09", "0.5 - 1e-09"),
        (6, "0.5", "0.75"),
        (7, "x", "not x"),
        (10, "'µ' != i", "'µ' == i"),
        (15, "self.x is None", "self.x is not None"),
    }
    for fault in faults:
        lines = fault.plant(SOURCE.encode()).decode().splitlines()
        compile("\n".join(lines), "part.py", "exec")
        assert f"({fault.after})" in lines[fault.line - 1]


def test_the_nearest_tests_run_first_and_a_model_runs_its_rows():
    (first, *_), *_ = mutate.runs_of(ROOT, "statistics", "lmzoo/lab/statistics/compared.py")
    assert first.endswith("statistics/test_compared.py")
    contract, mirrored = mutate.runs_of(ROOT, "models", "lmzoo/models/hmm.py")
    assert contract[-1] == "match_the_pins or obeys_every_law and (hmm or local_hmm)"
    assert mirrored[0] == "tests/models/test_hmm.py"
