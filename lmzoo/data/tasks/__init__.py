"""Generated tasks whose best accuracy is known.

    recall.py           mqar, in_context_recall, selective_copying
    state_tracking.py   parity, modular_arithmetic, s5, a5

`base.py` has what they share. A task of one's own is one file with a `GeneratedTask`.
"""
