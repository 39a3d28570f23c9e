"""Estimates of closed-form models, such as n-gram counts: computed once per corpus and process.

Such a model depends on no seed, so the runs of all seeds load one estimate. The sweep gives them to
one worker (`lmzoo/lab/sweep/fleet/sharing.py`). The cache is keyed by the model's config, the
fingerprint of the corpus and the device; it keeps the last `CAPACITY` estimates.

A model with `stream=true` reads a contiguous text as one sequence: the edges of blocks and windows
do not exist for it.
"""

import copy
import math
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lmzoo.contract import MODELS, START, LanguageModel
from lmzoo.data.blocks import Blocks, scored_text
from lmzoo.data.corpus import Corpus, Sequences
from lmzoo.kernels.device import device_of
from lmzoo.train.evaluate import Losses, evaluate, text_losses

CHUNK = 2**16
"""Tokens of a text that are scored at a time; the result does not depend on it."""
CAPACITY = 4
"""Estimates kept; the tables of a 5-gram are about as large as its training data."""


@dataclass
class Estimate:
    """A fitted model and its losses."""

    tables: dict[str, Tensor]
    """The model's state dict."""
    train: float
    """Training loss in nats per token."""
    valid: Losses | None
    """None if the training loss is not finite."""
    seconds: float
    """Time of the fit and of the evaluation on the training data."""
    test: Losses | None = None
    """None until `evaluate_test` is called."""


_ESTIMATES: OrderedDict[tuple[str, str, str], Estimate] = OrderedDict()
_LOCK = threading.RLock()


def load_estimate(model: LanguageModel, corpus: Corpus) -> Estimate:
    """Load the estimate on a corpus into a closed-form model, and return it."""
    # While one thread fits, others that need the same estimate wait for it.
    with _LOCK:
        found = _ESTIMATES.get(_key(model, corpus))
        if found is None:
            return _add(model, corpus)
        model.load_state_dict(found.tables)
        return found


def evaluate_test(model: LanguageModel, corpus: Corpus) -> Losses:
    """Return the test losses of a model; a closed-form model in the cache is evaluated once."""
    if not model.closed_form:
        return evaluate(model, corpus.test)
    with _LOCK:
        found = _ESTIMATES.get(_key(model, corpus))
        if found is None:  # the model comes from a checkpoint
            return _evaluate(model, corpus, corpus.test)
        if found.test is None:
            found.test = _evaluate(model, corpus, corpus.test)
        return found.test


def _add(model: LanguageModel, corpus: Corpus) -> Estimate:
    start = time.perf_counter()
    part = corpus.train.to(device_of(model))
    tokens = part.tokens
    lengths = part.lengths
    if _reads_text(model, corpus):
        assert isinstance(part, Blocks)
        assert part.stream is not None
        tokens = _started(part.stream)[None]
        lengths = lengths.new_tensor([tokens.shape[1]])

    def valid_loss() -> float:
        return _evaluate(model, corpus, corpus.valid).token

    model.fit_closed_form(tokens, lengths, valid_loss)
    train = _evaluate(model, corpus, corpus.train).token
    seconds = time.perf_counter() - start
    valid = None
    # A fit with an infinite loss has diverged: a number for validation would hide that.
    if math.isfinite(train):
        valid = _evaluate(model, corpus, corpus.valid)
    tables = copy.deepcopy(model.state_dict())
    estimate = Estimate(tables, train, valid, seconds)
    _ESTIMATES[_key(model, corpus)] = estimate
    # The oldest leaves first: tables of a large vocabulary are as large as the model.
    while len(_ESTIMATES) > CAPACITY:
        _ESTIMATES.popitem(last=False)
    return estimate


def _reads_text(model: LanguageModel, corpus: Corpus) -> bool:
    """Whether the model reads the splits of this corpus as one sequence each."""
    if not isinstance(corpus.train, Blocks):
        return False
    return getattr(model.config, "stream", False)


def _started(text: Tensor) -> Tensor:
    """Return a text after `<start>`."""
    return nn.functional.pad(text.long(), (1, 0), value=START)


@torch.no_grad()
def _evaluate(model: LanguageModel, corpus: Corpus, part: Sequences) -> Losses:
    if not _reads_text(model, corpus) or isinstance(part, Blocks):
        return evaluate(model, part)
    text = _started(scored_text(part).to(device_of(model)))
    past = 1
    # A model without a limit of its context reads nothing of the chunk before.
    if model.context_length:
        past = model.context_length
    scores = []
    for begin in range(0, len(text) - 1, CHUNK):
        # A chunk begins with the tokens that the model reads before its first scored one.
        first = max(0, begin + 1 - past)
        chunk = text[None, first : begin + 1 + CHUNK]
        length = chunk.new_tensor([chunk.shape[1]])
        values = model.log_prob(chunk, length)[0]
        scores.append(values[begin + 1 - first :].double().cpu())
    return text_losses(part, torch.cat(scores))


def _key(model: LanguageModel, corpus: Corpus) -> tuple[str, str, str]:
    config = MODELS.dump(model.config)
    described = f"{config} of {model.task} in {torch.get_default_dtype()}"
    return described, corpus.fingerprint, str(device_of(model))
