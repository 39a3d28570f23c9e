"""Which recurrent cells can track a state, and do they still do it on longer inputs?

Theory: a linear recurrence whose coefficients are diagonal and positive cannot compute the parity
of a string at all lengths; a tanh RNN or an LSTM can (Merrill et al. 2024, arXiv:2404.08819; Sarrof
et al. 2024, arXiv:2405.17394). Strings of 1 to 40 bits train, strings of 100 bits test. The loss of
a constant answer is ln 2, its accuracy one half. Training stays at this loss for many epochs before
it falls, so no run is pruned. Other tasks:

    --corpus modular_arithmetic
    --corpus s5
    --corpus a5
"""

from lmzoo.search_space import FloatRange
from lmzoo.sweep import Point, Study, main

STUDY = Study(
    name="state_tracking",
    question="Which recurrent cells can track a state, and do they still do it on longer inputs?",
    points=(
        Point("tanh", "rnn_lm"),
        Point("LSTM", "lstm_lm"),
        Point("GRU", "gru"),
        Point("minGRU", "min_gru"),
        Point("LRU", "lru"),
        Point("Mamba", "mamba"),
        Point("Gated DeltaNet", "gated_deltanet"),
        Point("RWKV-7", "rwkv7"),
    ),
    corpus="parity",
    search={"recipe.lr": FloatRange(0.001, 0.01, log=True)},
    fields={
        "corpus.train": 4000,
        "corpus.valid": 300,
        "corpus.test": 300,
        "recipe.batch": 32,
    },
    epochs=60,
    samples=3,
    pruner="none",
)

if __name__ == "__main__":
    main(STUDY)
