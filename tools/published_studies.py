"""The studies of the results pages: the script, corpus and options that made each file of records.

`tools/reference.py` trains them; `docs/results/records/NAME.parquet` has the records.
"""

from typing import NamedTuple

EVERY = ".*"
"""All points of a study."""


class PublishedStudy(NamedTuple):
    """A study whose records are in the repository."""

    script: str
    """Name of its file in `sweeps/`, and of the study if the file has several."""
    corpus: str
    """Option of the sweep. A path is relative to the folder of the data, as it enters each run."""
    options: str = ""
    points: str = EVERY
    """Regular expression of the labels to train."""


COSINE = "--set recipe.schedule=cosine --epochs 4"
RATE = "--set recipe.lr=0.01 --search-space recipe.lr=off --samples 1"
"""The study `reference-words` chose this rate at every point."""
S0_SIZE = "--set model.width=128 --set model.emission.components=400"
SMALL = "--set model.width=64 --set model.emission.components=90"
PUBLISHED = "--recipe published --set model.norm=time_std --search-space recipe.lr=off --samples 1"

PLAYS = "--set corpus.blocks=4000 --set recipe.batch=16 --epochs 8"

REFERENCE = {
    "reference-words": PublishedStudy("reference", "multi30k_en"),
    "reference-proteins": PublishedStudy("reference", "cath", SMALL),
    # The rows of the published table that `reference-words` does not have, in its setting.
    "reference-sound": PublishedStudy(
        "words",
        "multi30k_en",
        f"{S0_SIZE} --set recipe.batch=280 {COSINE} {RATE} --seeds 3",
        points=r"wild type|MGRU \{(4|5|4;6;.*)\}|VAE.*",
    ),
    "reference-published": PublishedStudy(
        "words", "multi30k_en", f"{S0_SIZE} --set corpus.split=seed {PUBLISHED} --epochs 20"
    ),
}
"""The reference study, in the order in which its parts are trained."""

MODERN = (
    *("gla", "gated_deltanet", "retnet", "hgrn2", "mamba", "slstm"),
    *("rg_lru", "min_gru", "lru"),
)
"""The cells of the pages on modern cells."""
MAPPED = ("mgru", "min_gru", "gru", "min_lstm", "lstm_peephole")
"""The cells of the sealed prediction on the page of the map."""
DECIDED = "--samples 8 --until-decided --max-seeds 32"
UNTIL_DECIDED = f"--epochs 40 {DECIDED}"
LONGER: dict[str, str] = dict.fromkeys(("gla", "retnet", "hgrn2", "rg_lru", "lru"), UNTIL_DECIDED)
WIDER: dict[tuple[str, int], str] = {("gru_ablation", 64): DECIDED}
MAPPED_LONGER: dict[str, str] = dict.fromkeys(
    ("min_gru", "gru", "min_lstm", "lstm_peephole"), DECIDED
)
"""Cell -> options of a study that was recorded again, until its contrasts were decided."""

OTHERS = {
    "ngrams-captions": PublishedStudy("ngrams", "captions"),
    "mixtures-captions": PublishedStudy("mixtures", "captions", f"--epochs 20 {DECIDED}"),
    "autoencoders-captions": PublishedStudy("autoencoders", "captions", "--samples 3"),
    "initial_states-captions": PublishedStudy(
        "initial_states",
        "captions",
        f"--epochs 20 {DECIDED}",
    ),
    "normalisation-proteins": PublishedStudy("normalisation", "cath", "--samples 3"),
    **{
        f"modern_{cell}-captions": PublishedStudy(
            f"modern_cells modern_{cell}", "captions", LONGER.get(cell, "")
        )
        for cell in MODERN
    },
    "canon_gla-captions": PublishedStudy("modern_cells canon_gla", "captions", "--samples 3"),
    "lstm_variants-captions": PublishedStudy(
        "lstm_variants lstm_variants", "captions", f"--epochs 20 {DECIDED}"
    ),
    # S0's regime on a corpus that trains in minutes: its recipe with and without the leak of its
    # inputs, and each of the two by the recipe of this package with a searched rate.
    **{
        f"{name}-captions": PublishedStudy(
            "words", "captions", f"{options} --seeds 10", points="wild type|cut 4"
        )
        for name, options in {
            "s0_leak": f"{PUBLISHED} --epochs 20",
            "s0_no_leak": "--recipe published --search-space recipe.lr=off --samples 1 --epochs 20",
            "tuned_leak": "--set model.norm=time_std",
            "tuned_no_leak": "",
        }.items()
    },
    # The effect of a cut against the width.
    **{
        f"{script.split()[-1]}_{width}-captions": PublishedStudy(
            script,
            "captions",
            f"--set model.width={width} {WIDER.get((script, width), '')}".strip(),
        )
        for width in (64, 128)
        for script in (
            "gru_ablation",
            "lstm_variants lstm_variants",
            "modern_cells modern_gated_deltanet",
        )
    },
    "state_tracking-parity": PublishedStudy("state_tracking", "parity"),
    "state_tracking-counting": PublishedStudy(
        "state_tracking",
        "modular_arithmetic",
        "--set corpus.modulus=3 --set corpus.operators=+ --set corpus.length=21"
        " --set corpus.test_length=61 --set corpus.train=2000 --samples 3",
        points="tanh|LSTM|Mamba|Mamba, signed|Gated DeltaNet|Gated DeltaNet, β < 2|DeltaProduct, n = 2",
    ),
    "state_tracking-s3": PublishedStudy(
        "state_tracking",
        "s3",
        "--set corpus.length=16 --set corpus.test_length=32 --set corpus.generators=true --epochs 20"
        " --set corpus.train=2000 --samples 3",
        points="tanh|LSTM|DeltaProduct.*",
    ),
    "state_tracking-s5": PublishedStudy(
        "state_tracking",
        "s5",
        "--set corpus.length=20 --set corpus.test_length=40 --set corpus.generators=true --epochs 15"
        " --set corpus.train=200000 --set recipe.batch=256 --set recipe.warmup=200 --samples 1"
        " --seeds 5 --set recipe.lr=0.005 --search-space recipe.lr=off",
        points="tanh|LSTM|DeltaProduct.*",
    ),
    **{
        f"map-{cell}-captions": PublishedStudy(
            f"map_cells map-{cell}", "captions", MAPPED_LONGER.get(cell, "")
        )
        for cell in MAPPED
    },
    "scaling-captions": PublishedStudy("scaling", "captions", "--until-decided --max-seeds 32"),
    **{
        f"map-{cell}-parity": PublishedStudy(
            f"map_cells map-{cell}",
            "parity",
            "--set recipe.batch=32 --set corpus.train=4000 --set corpus.valid=300"
            f" --set corpus.test=300 --samples 6 --margin 0.05 {options}",
        )
        for cell, options in {
            "mgu": "--search-space recipe.lr=0.004:0.016:log --seeds 24",
            "gru": "--search-space recipe.lr=0.002:0.016:log --seeds 16",
            "lstm_peephole": "--search-space recipe.lr=0.002:0.016:log --seeds 16",
        }.items()
    },
    **{
        f"map-{cell}-shakespeare_char": PublishedStudy(
            f"map_cells map-{cell}",
            "shakespeare_char",
            f"{PLAYS} --samples 8 --until-decided --seeds 12 --max-seeds 24",
        )
        for cell in ("mgu", "gru", "lstm_peephole", "min_gru", "min_lstm")
    },
    **{
        f"map-{cell}-captions": PublishedStudy(
            f"map_cells map-{cell}",
            "captions",
            "--search-space recipe.lr=0.005:0.1:log --samples 8 --until-decided --max-seeds 32",
        )
        for cell in ("mamba", "slstm", "rg_lru", "mamba2", "mlstm")
    },
    **{
        f"map-{cell}-mqar": PublishedStudy(
            f"map_cells map-{cell}",
            "mqar",
            "--set recipe.batch=32 --set corpus.pairs=4 --set corpus.noise=false"
            " --set corpus.keys=16 --set corpus.length=24 --set corpus.train=4000"
            " --set corpus.valid=200 --set corpus.test=500"
            " --search-space recipe.lr=0.002:0.03:log --epochs 8 --samples 6 --seeds 16"
            " --margin 0.05 --pruner none",
        )
        for cell in ("gated_deltanet", "deltanet")
    },
    "smallest_mgu_parity-parity": PublishedStudy(
        "smallest_cells smallest_mgu_parity", "parity", "--until-decided --max-seeds 330"
    ),
    "smallest_mgu_parity_64-parity": PublishedStudy(
        "smallest_cells smallest_mgu_parity", "parity", "--set model.width=64 --seeds 32"
    ),
    "smallest_lstm_parity-parity": PublishedStudy("smallest_cells smallest_lstm_parity", "parity"),
    "smallest_lstm_parity_64-parity": PublishedStudy(
        "smallest_cells smallest_lstm_parity", "parity", "--set model.width=64 --seeds 16"
    ),
    "smallest_lstm-captions": PublishedStudy("smallest_cells smallest_lstm", "captions"),
    "smallest_lstm_64-captions": PublishedStudy(
        "smallest_cells smallest_lstm", "captions", "--set model.width=64 --seeds 16"
    ),
    "smallest_lstm_80-captions": PublishedStudy(
        "smallest_cells smallest_lstm",
        "captions",
        "--search-space recipe.lr=0.001:0.05:log --epochs 80 --samples 16 --seeds 16",
    ),
    "smallest_mamba-captions": PublishedStudy("smallest_cells smallest_mamba", "captions"),
    "smallest_mamba_64-captions": PublishedStudy(
        "smallest_cells smallest_mamba", "captions", "--set model.width=64 --seeds 16"
    ),
    "smallest_gla-captions": PublishedStudy("smallest_cells smallest_gla", "captions"),
    "smallest_gla_64-captions": PublishedStudy(
        "smallest_cells smallest_gla", "captions", "--set model.width=64 --seeds 16"
    ),
    "smallest_gated_deltanet_recall-mqar": PublishedStudy(
        "smallest_cells smallest_gated_deltanet_recall", "mqar"
    ),
    "smallest_gated_deltanet_recall_64-mqar": PublishedStudy(
        "smallest_cells smallest_gated_deltanet_recall", "mqar", "--set model.width=64 --seeds 48"
    ),
    "smallest_mgu_text-shakespeare_char": PublishedStudy(
        "smallest_cells smallest_mgu_text", "shakespeare_char", "--samples 16"
    ),
    "smallest_mgu_text_64-shakespeare_char": PublishedStudy(
        "smallest_cells smallest_mgu_text",
        "shakespeare_char",
        "--samples 16 --set model.width=64 --seeds 16",
    ),
    "smallest_mgu-shakespeare_char": PublishedStudy(
        "smallest_mgu", "shakespeare_char", f"{PLAYS} --seeds 12"
    ),
    "smallest_lstm-shakespeare_char": PublishedStudy(
        "smallest_cells smallest_lstm",
        "shakespeare_char",
        f"{PLAYS} --seeds 12 --search-space recipe.lr=0.0005:0.03:log",
    ),
    "smallest_gla-shakespeare_char": PublishedStudy(
        "smallest_cells smallest_gla", "shakespeare_char", f"{PLAYS} --seeds 12"
    ),
    "smallest_mamba-shakespeare_char": PublishedStudy(
        "smallest_cells smallest_mamba", "shakespeare_char", f"{PLAYS} --seeds 12"
    ),
    "smallest_mgu-captions": PublishedStudy("smallest_mgu", "captions"),
    "smallest_mgu-multi30k_en": PublishedStudy(
        "smallest_mgu", "multi30k_en", "--epochs 2 --samples 5 --seeds 6"
    ),
    "smallest_mgu_64-captions": PublishedStudy("smallest_mgu", "captions", "--set model.width=64"),
}
"""The studies of the other pages, the short ones first."""

STUDIES = {**REFERENCE, **OTHERS}
