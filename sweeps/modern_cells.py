"""Which path of each modern cell matters?

A study for each cell: the cell in a residual block with a feed-forward part, and the same cell
without one of its paths. `lmzoo describe ROW` has the equations. The first points of a study are
the ablation in the paper of the cell, if it has one; the papers give one run and no interval.

    python sweeps/modern_cells.py modern_retnet
    python sweeps/modern_cells.py modern_retnet --corpus text:shakespeare.txt \
        --set corpus.unit=char --epochs 3
"""

from collections.abc import Sequence
from typing import Any

from lmzoo import Point, Study, main

BOTH = ("convolution", "output_gate")
"""Parts of the block that are left out, because the cell has its own or its paper has none."""
MIXING = "state_to_write+state_to_forget+state_to_output+state_to_candidate"
"""The memory mixing of the sLSTM."""


def point(
    label: str, cell: str, names: Sequence[str] = (), left_out: Sequence[str] = BOTH, **block: Any
) -> Point:
    """Return a cell without the paths `names`, in a block without the parts `left_out`."""
    inner = {"name": cell, "cuts": list(names)}
    part = {"name": "block", "inner": inner, "cuts": list(left_out), **block}
    return Point(label, "min_gru_block", {"cell": part})


def study(row: str, cell: str, left_out: tuple[str, ...], *cuts: str) -> Study:
    """Return the study of a cell; each of `cuts` names one cut, or several with + between them."""
    paths = (point(f"cut {cut.replace('+', ', ')}", cell, cut.split("+"), left_out) for cut in cuts)
    return Study(
        name=f"modern_{row}",
        question=f"Which path of {row} matters?",
        points=(point(row, cell, left_out=left_out), *paths),
        fields={"recipe.schedule": "cosine"},
    )


def canon(row: str, cell: str, cuts: Sequence[str], *others: Point) -> Study:
    """Return the study of where a short convolution of a cell is worth most (arXiv:2512.17351)."""
    places = (
        point(f"Canon {','.join(own)}", cell, cuts, canon=list(own)) for own in (*"abcd", "abcd")
    )
    return Study(
        name=f"canon_{row}",
        question=f"Is it the convolution? A short one at four places of {row}",
        points=(point("no convolution", cell, cuts), *others, *places),
        fields={"recipe.schedule": "cosine"},
    )


STUDIES = (
    study(
        *("retnet", "retention", BOTH),
        *("decay", "scales", "gate", "norm", "rotation"),
    ),
    study(
        *("gla", "gla", BOTH),
        *("vector", "data", "decay", "gate", "norm"),
    ),
    study(
        *("hgrn2", "hgrn2", BOTH),
        *("lower_bound", "input_to_forget", "tied_write", "query"),
    ),
    study(
        *("gated_deltanet", "gated_deltanet", BOTH),
        *("alpha", "gate", "convolution", "norm", "beta", "delta", "unit"),
    ),
    study(
        *("mamba", "mamba", BOTH),
        *("delta+b+c", "b+c", "delta+c", "delta+b", "skip", "convolution", "gate"),
    ),
    study(
        *("rwkv7", "rwkv7", BOTH),
        *("vector_decay", "vector_rate", "bonus", "token_shift", "decay", "removal", "gate"),
    ),
    study(
        *("mlstm", "mlstm", BOTH),
        *("exponential", "input_gate", "forget_gate", "normaliser", "output_gate", "convolution"),
    ),
    study(
        *("slstm", "slstm", ("output_gate",)),
        *("exponential", "exponential+normaliser", MIXING, "forget_gate", "output_gate"),
    ),
    study(
        *("rg_lru", "rg_lru", ()),
        *("recurrence_gate", "input_gate", "root", "input_to_recurrence", "carry"),
    ),
    study(
        *("min_gru", "min_gru", ()),
        *("input_to_gate", "write_gate", "input_to_candidate", "carry"),
    ),
    study(
        *("lru", "lru", BOTH),
        *("phase", "normaliser", "exponential", "skip", "carry"),
    ),
    study("mamba3", "mamba3", BOTH, "trapezoid", "rotation", "bias", "decay"),
    Study(
        name="delta_rules",
        question="Do Kimi Delta Attention or the M²RNN gain anything over Gated DeltaNet?",
        points=(
            point("Gated DeltaNet", "gated_deltanet"),
            point("Kimi Delta Attention", "kda"),
            point("M²RNN", "m2rnn"),
        ),
        fields={"recipe.schedule": "cosine"},
    ),
    canon("gla", "gla", (), point("convolution of the block", "gla", (), ["output_gate"])),
    canon("gated_deltanet", "gated_deltanet", ["convolution"], point("its own", "gated_deltanet")),
    canon("mamba", "mamba", ["convolution"], point("its own", "mamba")),
)

if __name__ == "__main__":
    main(*STUDIES)
