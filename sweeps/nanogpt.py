"""Does the package reach nanoGPT's loss on Shakespeare, and how do recurrent cells compare?

nanoGPT's setting for CPUs (github.com/karpathy/nanoGPT, README): 4 layers, 4 heads, width 128, 64
characters, 2,000 steps of 12 blocks, no dropout, AdamW whose rate falls from 1e-3 to 1e-4. Its
validation loss is 1.88 nats per character. minGRU and minLSTM have as many parameters, in residual
blocks. Nothing is searched. Eight epochs of 3,000 random blocks are 2,000 steps:

    python sweeps/nanogpt.py --data-dir DIR
"""

from lmzoo.sweep import Point, Study, main

GPT = {"attention.heads": 4, "tied": True, "dropout": 0.0}

STUDY = Study(
    name="nanogpt",
    question="Does the package reach nanoGPT's loss, and how do recurrent cells compare?",
    points=(
        Point("GPT", "gpt", {**GPT, "layers": 4}),
        Point("minGRU", "min_gru_block", {"num_layers": 4}),
        Point(
            "minLSTM",
            "min_gru_block",
            {"num_layers": 4, "cell": {"name": "block", "inner": {"name": "min_lstm"}}},
        ),
    ),
    corpus="shakespeare_char",
    search={},
    fields={
        "corpus.split": "nanogpt",
        "corpus.blocks": 3000,
        "model.width": 128,
        "recipe.optimiser": "adamw",
        "recipe.lr": 1e-3,
        "recipe.beta2": 0.99,
        "recipe.weight_decay": 0.1,
        "recipe.batch": 12,
        "recipe.warmup": 100,
        "recipe.schedule": "cosine",
        "recipe.final_lr": 0.1,
    },
    epochs=8,
    samples=1,
    seeds=2,
    pruner="none",
    reference="GPT",
)

if __name__ == "__main__":
    main(STUDY)
