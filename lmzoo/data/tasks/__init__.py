"""Generated tasks whose best accuracy is known, one per file.

    recall            mqar, induction, in_context_recall, noisy_recall, fuzzy_recall, memorisation
    copying           selective_copying, compression
    state tracking    parity, modular_arithmetic, s5, a5, s4, s3, z60
    hierarchy         dyck

`base.py` has what they share. A task of one's own is one file with a `GeneratedTask`.
"""
