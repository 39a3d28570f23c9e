"""Generated tasks whose best accuracy is known.

    recall.py           mqar, induction, in_context_recall, noisy_recall, fuzzy_recall, memorisation
    copying.py          selective_copying, compression
    state_tracking.py   parity, modular_arithmetic, s5, a5, s4, s3, z60
    dyck.py             brackets of several kinds

`base.py` has what they share. A task of one's own is one file with a `GeneratedTask`.
"""
