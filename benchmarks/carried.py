"""Loss on Shakespeare's characters with and without carried state, in training and in evaluation.

    python benchmarks/carried.py [--data-dir DIR]

Two recipes differ in `carry_state` only; each trains an LSTM with three seeds. The weights of the
best validation epoch score the test split in windows and in one pass with carried state.
"""

import argparse
import dataclasses
import sys
import time
from pathlib import Path

import torch

from lmzoo import zoo
from lmzoo.data.corpus import open_corpus
from lmzoo.train.carried import evaluate_carried
from lmzoo.train.evaluate import evaluate
from lmzoo.train.recipe import Recipe
from lmzoo.train.trainer import Training, fit

SEEDS, EPOCHS = 3, 4
BLOCK, STRIDES = 64, (64, 8)
RECIPE = Recipe(lr=5e-3, batch=32)
MODEL = zoo.config("lstm_lm", width=128)


def main() -> None:
    """Train both recipes and print the mean test loss and the spread of each evaluation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, help="Folder of the text; default: download it.")
    data_dir = parser.parse_args().data_dir
    torch.set_num_threads(1)
    corpora = {
        f"windows, stride {stride}": open_corpus(
            {"name": "shakespeare_char", "block": BLOCK, "stride": stride}, data_dir
        )
        for stride in STRIDES
    }
    first = next(iter(corpora.values()))
    for carry in (False, True):
        recipe = dataclasses.replace(RECIPE, carry_state=carry)
        losses: dict[str, list[float]] = {}
        start = time.perf_counter()
        for seed in range(SEEDS):
            training = Training(zoo.build(MODEL, first.task, seed), recipe, seed)
            list(fit(training, first, EPOCHS))
            training.model.load_state_dict(training.best_weights)
            for name, corpus in corpora.items():
                losses.setdefault(name, []).append(evaluate(training.model, corpus.test).token)
            one_pass = evaluate_carried(training.model, first.test).token
            losses.setdefault("one pass, carried", []).append(one_pass)
        seconds = (time.perf_counter() - start) / SEEDS
        sys.stdout.write(f"trained with carry_state={carry}: {seconds:.0f} s a seed\n")
        for name, values in losses.items():
            all_losses = ", ".join(f"{value:.4f}" for value in values)
            mean = sum(values) / len(values)
            sys.stdout.write(f"  {name:20} {mean:.4f} nats per character ({all_losses})\n")


if __name__ == "__main__":
    main()
