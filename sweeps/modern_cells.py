"""Which path of each modern cell matters?

A study for each cell: the cell in a residual block with a feed-forward part, and the same cell
without one of its paths. `lmzoo describe ROW` has the equations. The first points of a study are
the ablation in the paper of the cell, if it has one; the papers give one run and no interval.

    python sweeps/modern_cells.py modern_retnet
    python sweeps/modern_cells.py modern_retnet --corpus text:shakespeare.txt \
        --set corpus.unit=char --epochs 3
"""

from lmzoo.sweep import Point, Study, main

BOTH = ("convolution", "output_gate")
"""Parts of the block that are left out, because the cell has its own or its paper has none."""
MIXING = "state_to_write+state_to_forget+state_to_output+state_to_candidate"
"""The memory mixing of the sLSTM."""


def study(row: str, cell: str, left_out: tuple[str, ...], *cuts: str) -> Study:
    """Return the study of a cell; each of `cuts` names one cut, or several with + between them."""

    def point(label: str, names: list[str]) -> Point:
        inner = {"name": cell, "cuts": names}
        block = {"name": "block", "inner": inner, "cuts": list(left_out)}
        return Point(label, "min_gru_block", {"cell": block})

    return Study(
        name=f"modern_{row}",
        question=f"Which path of {row} matters?",
        points=(
            point(row, []),
            *(point(f"cut {cut.replace('+', ', ')}", cut.split("+")) for cut in cuts),
        ),
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
)

if __name__ == "__main__":
    main(*STUDIES)
