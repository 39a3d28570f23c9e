"""What does training without each named part of a cell cost?

A study for each cell, with all of its single cuts. `lmzoo ablate` measures what the same cuts cost
the trained whole cell, and `tools/map.py` compares both costs.

    python sweeps/map_cells.py map-gru
"""

from lmzoo import Point, Study, main

CUTS = {
    "attention": "rotation",
    "deltanet": "beta delta convolution unit norm",
    "gated_deltanet": "beta delta convolution unit norm alpha gate",
    "deltaproduct": "beta delta convolution unit norm alpha gate",
    "kda": "beta delta convolution unit norm alpha gate vector",
    "comba": "beta delta convolution unit norm alpha gate feedback correction splr",
    "gla": "vector data decay gate norm",
    "retention": "rotation decay scales gate norm",
    "hgrn2": "lower_bound input_to_forget tied_write query squash carry norm",
    "gru": (
        "input_to_reset state_to_reset reset_bias input_to_update state_to_update "
        "update_bias input_to_candidate state_to_candidate candidate_bias reset update"
    ),
    "lru": "phase normaliser exponential skip carry",
    "rg_lru": (
        "input_to_recurrence recurrence_bias input_to_input_gate input_gate_bias "
        "recurrence_gate input_gate root carry"
    ),
    "lstm_peephole": (
        "input_gate forget_gate output_gate input_activation output_activation coupled peepholes"
    ),
    "m2rnn": "tanh transition forget convolution skip gate norm",
    "mamba": "delta b c skip convolution gate",
    "mamba2": "delta b c decay skip convolution gate norm",
    "mamba3": "trapezoid rotation bias decay norm skip gate",
    "mgu": (
        "input_to_gate state_to_gate gate_bias input_to_candidate state_to_candidate "
        "candidate_bias carry write"
    ),
    "mgru": "state_to_gate input_to_candidate carry write",
    "min_gru": "input_to_gate gate_bias input_to_candidate candidate_bias carry write_gate",
    "min_lstm": (
        "input_to_forget forget_bias input_to_write write_bias input_to_candidate "
        "candidate_bias carry normaliser write_gate"
    ),
    "rwkv7": "token_shift decay vector_decay rate vector_rate removal removal_key bonus gate norm",
    "mlstm": "input_gate forget_gate exponential normaliser output_gate norm convolution skip",
    "slstm": (
        "input_to_write input_to_forget input_to_output forget_gate state_to_write "
        "state_to_forget state_to_output state_to_candidate exponential normaliser "
        "output_gate convolution norm"
    ),
}
"""Cell -> its cuts, in the order of their numbers (`lmzoo describe ROW`)."""


def study(cell: str) -> Study:
    """Return the study of all single cuts of a cell."""
    points = [Point("whole", "recurrent_lm", {"cell": cell})]
    for number, cut in enumerate(CUTS[cell].split()):
        fields = {"cell": {"name": cell, "cuts": [cut]}}
        points.append(Point(f"cut {cut} ({number})", "recurrent_lm", fields))
    return Study(
        name=f"map-{cell}",
        question=f"What does training without each part of {cell} cost?",
        points=tuple(points),
        fields={"model.emission": "vector", "recipe.schedule": "cosine"},
        epochs=20,
        seeds=8,
    )


STUDIES = tuple(study(cell) for cell in CUTS)

if __name__ == "__main__":
    main(*STUDIES)
