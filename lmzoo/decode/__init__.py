"""Decoding: sequences out of any model, token by token, over `begin` and `advance` alone.

start.py         reading `<start>` and what is to be gone on from; when a sequence has ended
greedy.py        the likeliest token, again and again
beam.py          the likeliest sequences that few beams can find
ancestral.py     draws from the model, tempered or not
"""

from lmzoo.decode import ancestral, beam, greedy  # noqa: F401  importing them registers them
