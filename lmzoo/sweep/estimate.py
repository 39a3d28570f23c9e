"""How long an epoch takes here: measured on a few real steps, not guessed."""

import time

import torch

from lmzoo import zoo
from lmzoo.contract import LanguageModel
from lmzoo.data.batches import epoch_batches, gather_batch
from lmzoo.data.corpus import Corpus
from lmzoo.sweep.resolve import ResolvedPoint

STEPS = 3


def seconds_per_epoch(point: ResolvedPoint, corpus: Corpus) -> float:
    """Seconds of one training epoch of this point on one thread of this machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        model = zoo.build(point.model, corpus.task, seed=0)
        batches = epoch_batches(corpus.train.lengths, point.recipe.batch, seed=0, epoch=0)
        _step(model, corpus, batches[0])
        start = time.perf_counter()
        for rows in batches[1 : 1 + STEPS]:
            _step(model, corpus, rows)
        took = time.perf_counter() - start
        return took / max(1, len(batches[1 : 1 + STEPS])) * len(batches)
    finally:
        torch.set_num_threads(threads)


def _step(model: LanguageModel, corpus: Corpus, rows: torch.Tensor) -> None:
    batch = gather_batch(corpus.train, rows)
    loss = -model.log_prob(batch.tokens, batch.lengths, *batch.given).sum()
    if loss.requires_grad:
        loss.backward()
