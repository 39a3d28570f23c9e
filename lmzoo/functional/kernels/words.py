"""The loops of `functional/scan/words.py`: rows of members' tables (P, V, G), words (T, P, B)."""

from typing import no_type_check

from lmzoo.functional.kernels.compiled import compiled


@compiled
@no_type_check
def look_up(rows, words, out):
    """Fill out (T, P, B, G); False at a word that has no row."""
    steps, members, sequences = words.shape
    for t in range(steps):
        for p in range(members):
            for b in range(sequences):
                v = words[t, p, b]
                if not 0 <= v < rows.shape[1]:
                    return False
                here, there = out[t, p, b], rows[p, v]
                for i in range(len(here)):
                    here[i] = there[i]
    return True


@compiled
@no_type_check
def add_up(d, words, total):
    """Add d (T, P, B, G) to its words' rows of the total (P, V, G)."""
    steps, members, sequences = words.shape
    for t in range(steps):
        for p in range(members):
            for b in range(sequences):
                here, there = d[t, p, b], total[p, words[t, p, b]]
                for i in range(len(here)):
                    there[i] += here[i]
