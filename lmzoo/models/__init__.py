r"""Language models: a family is one file, and `rows.toml` has the presets.

In come tokens (B, T) and lengths (B,); out come log-probabilities (B, T). Read `recurrent_lm.py`
first, and `lmzoo/contract.py` for what a model promises. Importing this package registers all.

Notation of the docstrings, with shapes:

    s_t          token id at position t; s_0 is `<start>`
    Emb, e(v)    embedding table (V, E) and its row v
    c_j          e(s_{t-j}), the token j positions before the predicted one; the vector 1 before
                 `<start>` unless a docstring says otherwise
    k_z          vector (E) of component z = 1..K; P(v | z) = softmax_v( Emb k_z )
    N            normaliser of vectors (`lmzoo.functional.normalise`)
    σ, LSE, ⊕    logistic function, logsumexp, concatenation
    U(f)         uniform distribution on (−1/√f, 1/√f), used for initial weights
    B, T, V, E   batch size, padded length, vocabulary size, embedding size

S0..S4 and DLM1..DLM56 name the documents that the models come from: see `docs/sources.md`.
"""

from pathlib import Path

from lmzoo.base.registry import add_rows, discover

discover(__name__)
add_rows(Path(__file__).with_name("rows.toml"))  # after the models: a preset copies a row of theirs
