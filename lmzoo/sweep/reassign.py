"""Moves running runs from one trial to another worker.

Ray Tune cannot change the config of a running trial. So the sweep writes the runs that a trial must
release into Ray's key-value store, under the trial's id. The trial reads them before its next epoch
and closes those runs. The new owner waits for their locks, as after a death, and continues from
their checkpoints.
"""

import json
import logging
from collections.abc import Iterable

import ray
from ray.experimental import internal_kv

NAMESPACE = "lmzoo-reassign"
LOG = logging.getLogger("lmzoo.sweep")


def remove_runs(trial_id: str, runs: Iterable[str]) -> None:
    """Tell a trial to release these runs; call it between two of its epochs."""
    removed = json.dumps(sorted({*removed_runs(trial_id), *runs}))
    internal_kv._internal_kv_put(trial_id, removed, namespace=NAMESPACE)


def removed_runs(trial_id: str) -> set[str]:
    """Return the runs that a trial must release; empty if Ray is not running."""
    if not ray.is_initialized():
        return set()
    text = internal_kv._internal_kv_get(trial_id, namespace=NAMESPACE)
    return set(json.loads(text)) if text else set()


def run_id_of(folder: str) -> str:
    """Return the run identity in a folder path or a bucket address."""
    return folder.rpartition("/")[2]


def clear(trial_id: str) -> None:
    """Delete the entry of a trial that has ended."""
    try:
        internal_kv._internal_kv_del(trial_id, namespace=NAMESPACE)
    except Exception as error:  # Ray is not reachable, so no trial reads the entry
        LOG.debug("entry of trial %s not deleted: %s", trial_id, error)
