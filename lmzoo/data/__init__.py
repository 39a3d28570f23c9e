"""Corpora, and the one road from bytes to batches.

    download.py, files.py         bytes: a published file or archive, a file or folder of the user
    splits.py                     what trains, validates and tests
    vocabulary.py, tokenisers.py  tokens and their ids; `<unk>` in the training split
    sequences.py                  lines, records and pairs as padded sequences
    streams.py, blocks.py         a contiguous text as ids (cached by id_cache.py), blocks, windows
    batches.py                    what a training epoch reads

`corpus.py` defines a corpus and opens one by name, `text_facts.py` says what reading a text gave.
Corpora: user_files.py, published_texts.py, multi30k.py, cath.py, captions.py, random_symbols.py,
recall.py and state_tracking.py (both tasks.py). Importing this
package registers them:

    lmzoo.data.corpus.open_corpus("captions")
"""

from lmzoo.base.registry import discover

discover(__name__)
