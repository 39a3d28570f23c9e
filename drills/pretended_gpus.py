"""A study whose workers are granted pretended GPUs: they train on the CPU, and log their epochs.

    python -m drills.pretended_gpus SENTENCES [options of a study]

Ray runs `train_on_cpu` in every worker process before anything else. An epoch takes `EPOCH_SECONDS`
longer than its training, as if a GPU computed it, so that a small machine can play many GPUs.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

LOG = "LMZOO_DRILL_EPOCHS"
"""Environment variable: the file to which each worker appends a line per epoch of its pack."""
EPOCH_SECONDS = 1.5


def train_on_cpu() -> None:
    """Replace the GPU of this worker process by the CPU, and log the epochs that it trains."""
    import ray
    import torch

    from lmzoo.kernels import device
    from lmzoo.lab.sweep.worker.pack import Pack

    def granted_gpu(node: str, share: float) -> torch.device:
        assert len(ray.get_gpu_ids()) == 1, "the worker has no GPU of its own"
        return device.CPU

    train_epoch = Pack.train_epoch

    def train_slowly(pack, members, *, packed):
        start = time.time()
        reports = train_epoch(pack, members, packed=packed)
        if members:
            time.sleep(EPOCH_SECONDS)
            node, gpu = ray.get_runtime_context().get_node_id(), int(ray.get_gpu_ids()[0])
            line = json.dumps([node, gpu, start, time.time(), len(members)]) + "\n"
            with Path(os.environ[LOG]).open("a") as log:
                log.write(line)
        return reports

    device.granted_gpu = granted_gpu
    torch.cuda.get_device_properties = lambda _: SimpleNamespace(total_memory=2**34)
    Pack.train_epoch = train_slowly


def main() -> None:
    """Run the study; all workers run `train_on_cpu` first."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sentences", help="a text, a sentence a line")
    given, options = parser.parse_known_args()
    sys.argv[1:] = options
    from lmzoo.lab import sweep
    from lmzoo.lab.cluster import connection
    from tests.toy_study import toy_study

    connection.runtime_env = lambda: {
        "worker_process_setup_hook": "drills.pretended_gpus.train_on_cpu"
    }
    sweep.main(toy_study(Path(given.sentences)))


if __name__ == "__main__":
    main()
