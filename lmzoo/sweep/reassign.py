"""Runs that leave a trial for another place, which would have nothing to do.

What a trial was given when it started, Tune cannot take back. So the sweep writes which of
its runs it has given away, under the trial's name, in Ray's key-value store, before the trial
begins its next epoch; there it lets go of them. Who gets them waits for their locks, as after
a death, and goes on from their checkpoints.
"""

import json
import logging
from collections.abc import Iterable

import ray
from ray.experimental import internal_kv

NAMESPACE = "lmzoo-handover"
LOG = logging.getLogger("lmzoo.sweep")


def reassign(trial: str, runs: Iterable[str]) -> None:
    """These runs are no longer this trial's; to be called between two of its epochs."""
    gone = json.dumps(sorted({*reassigned(trial), *runs}))
    internal_kv._internal_kv_put(trial, gone, namespace=NAMESPACE)


def reassigned(trial: str) -> set[str]:
    """What this trial must let go of."""
    if not ray.is_initialized():
        return set()
    text = internal_kv._internal_kv_get(trial, namespace=NAMESPACE)
    return set(json.loads(text)) if text else set()


def run_of(folder: str) -> str:
    """The run of a folder, or of an address in a bucket."""
    return folder.rpartition("/")[2]


def forget(trial: str) -> None:
    """The trial is over."""
    try:
        internal_kv._internal_kv_del(trial, namespace=NAMESPACE)
    except Exception as error:  # Ray is away, or was never there: nobody will ask for it
        LOG.debug("not forgotten: %s", error)
