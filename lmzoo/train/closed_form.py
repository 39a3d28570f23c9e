"""Estimates of closed-form models, such as n-gram counts: computed once per corpus and process.

Such a model depends on no seed, so the runs of all seeds load one estimate. The sweep gives them to
one worker (`lmzoo/sweep/fleet/sharing.py`). The cache is keyed by the model's config, the
fingerprint of the corpus and the device; it keeps the last `CAPACITY` estimates.
"""

import math
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass

import torch
from torch import Tensor

from lmzoo.contract import MODELS, LanguageModel
from lmzoo.data.corpus import Corpus
from lmzoo.kernels.device import device_of
from lmzoo.train.carried import evaluate_carried
from lmzoo.train.evaluate import Losses, evaluate

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
    with _LOCK:
        found = _ESTIMATES.get(_key(model, corpus))
        if found is None:
            return _add(model, corpus)
        model.load_state_dict(found.tables)
        return found


def evaluate_test(model: LanguageModel, corpus: Corpus, *, carry_state: bool = False) -> Losses:
    """Return the test losses of a model; a closed-form model in the cache is evaluated once."""
    if not model.closed_form:
        return (evaluate_carried if carry_state else evaluate)(model, corpus.test)
    with _LOCK:
        found = _ESTIMATES.get(_key(model, corpus))
        if found is None:  # the model comes from a checkpoint
            return evaluate(model, corpus.test)
        if found.test is None:
            found.test = evaluate(model, corpus.test)
        return found.test


def _add(model: LanguageModel, corpus: Corpus) -> Estimate:
    start = time.perf_counter()
    part = corpus.train.to(device_of(model))
    model.fit_closed_form(part.tokens, part.lengths)
    train = evaluate(model, corpus.train).token
    seconds = time.perf_counter() - start
    valid = evaluate(model, corpus.valid) if math.isfinite(train) else None
    tables = {name: table.clone() for name, table in model.state_dict().items()}
    estimate = _ESTIMATES[_key(model, corpus)] = Estimate(tables, train, valid, seconds)
    while len(_ESTIMATES) > CAPACITY:
        _ESTIMATES.popitem(last=False)
    return estimate


def _key(model: LanguageModel, corpus: Corpus) -> tuple[str, str, str]:
    config = f"{MODELS.dump(model.config)} of {model.task} in {torch.get_default_dtype()}"
    return config, corpus.fingerprint, str(device_of(model))
