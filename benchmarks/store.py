"""What the store costs a worker: whole runs of a pack, with a folder, a bucket and no store.

    python benchmarks/store.py --out runs/bench/store.json

A pack of DLM46 on the built-in captions is opened, trained for 10 epochs, tested, ended and closed
by the worker's own code (`lmzoo/sweep/worker/pack.py`). The rival trains and tests the same pack
and stores nothing. Wall time is the result, because a request waits and computes little. On a busy
machine it varies with the other processes, so the CPU time of the worker is compared too.

The bucket is in a moto server in a process of its own, and every request waits for another
`--milliseconds` in the thread that sends it, so requests of different threads wait together. The
server takes CPU time on this machine, which S3 would not. All requests of the worker are counted,
those of its lock included.
"""

import itertools
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from measure import Ratio, Work, interleave, save, time_ratio

from lmzoo import zoo
from lmzoo.command_line import run_command
from lmzoo.config import from_dict
from lmzoo.contract import MODELS
from lmzoo.data.corpus import Corpus, open_corpus
from lmzoo.store.open import open_store
from lmzoo.study.study_store import WORKER_LOCK
from lmzoo.sweep.worker.pack import Pack
from lmzoo.train.evaluate import evaluate
from lmzoo.train.packed.trainer import train_packed_epoch
from lmzoo.train.recipe import Recipe
from lmzoo.train.run_config import run_config
from lmzoo.train.trainer import Training

CPU = torch.device("cpu")
BUCKET = "runs"
TIME_GOAL, REQUEST_GOAL = 1.2, 2.0
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
}


def main(
    runs: Annotated[int, typer.Option(min=1, help="Pack members.")] = 11,
    epochs: Annotated[int, typer.Option(min=1)] = 10,
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    milliseconds: Annotated[float, typer.Option(min=0, help="Added to every request.")] = 30.0,
    width: Annotated[int, typer.Option(min=1, help="Of the models.")] = 32,
    sentences: Annotated[int, typer.Option(min=1, help="Of the training split.")] = 4000,
    out: Annotated[Path, typer.Option(help="The JSON file.")] = Path("runs/bench/store.json"),
) -> None:
    """Measure all stores in turns."""
    torch.set_num_threads(1)
    spec = {"name": "captions", "train": sentences}
    corpus = open_corpus(spec)
    model = zoo.config("DLM46", width=width, emission={"components": width})
    labels = {"stage": "confirm", "point": {"label": "wild type"}, "setting": {}}
    configs = [
        {**run_config(model, Recipe(), corpus, spec, seed), **labels} for seed in range(runs)
    ]
    with tempfile.TemporaryDirectory() as folder, s3_server():
        requests = count_requests(milliseconds / 1000)
        contenders = {
            "no store": lambda: train_only(configs, corpus, epochs),
            "folder": whole_runs(folder, configs, corpus, epochs),
            "bucket": whole_runs(f"s3://{BUCKET}", configs, corpus, epochs),
        }
        cpu: list[float] = []
        seconds = interleave(contenders, rounds, timer=lambda work: wall_seconds(work, cpu))
    at = f"{runs} runs of {epochs} epochs"
    stores = {"folder": f"{at}, folder", "bucket": f"{at}, bucket, {milliseconds:g} ms a request"}
    cpu_seconds = {name: cpu[i :: len(contenders)][1:] for i, name in enumerate(contenders)}
    rows = [
        time_ratio(f"whole runs, {what}", stores[name], "no store", by[name], by["no store"], goal)
        for what, by, goal in (("wall", seconds, TIME_GOAL), ("CPU", cpu_seconds, None))
        for name in stores
    ]
    save([*rows, request_ratio(at, len(requests) / (rounds + 1), runs * epochs)], out)


def request_ratio(at: str, requests: float, epochs: int) -> Ratio:
    """Return the requests a run and epoch, on average over whole runs."""
    mean = requests / epochs
    return Ratio(
        what="requests", at=f"{at}, bucket", rival="run and epoch", unit="requests / (run, epoch)",
        median=mean, low=mean, high=mean, goal=f"≤ {REQUEST_GOAL:.2f}",
        holds=mean <= REQUEST_GOAL, absolute=f"{requests:.0f} / {epochs}",
    )  # fmt: skip


def train_only(configs: list[dict[str, Any]], corpus: Corpus, epochs: int) -> None:
    """Train and test the pack without a store."""
    recipe = from_dict(Recipe, configs[0]["recipe"])
    model = MODELS.parse(configs[0]["model"])
    trainings = [
        Training(zoo.build(model, corpus.task, config["seed"], recipe.init), recipe, config["seed"])
        for config in configs
    ]
    for _ in range(epochs):
        train_packed_epoch(trainings, corpus)
    for training in trainings:
        training.model.load_state_dict(training.best_weights)
        evaluate(training.model, corpus.test)


def whole_runs(address: str, configs: list[dict[str, Any]], corpus: Corpus, epochs: int) -> Work:
    """Return the work of a worker that opens, trains and ends the runs in an empty store."""
    numbers = itertools.count()
    members = [config["run"] for config in configs]
    jobs = [{"config": c, "budget": epochs, "epoch": 0, "is_new": True} for c in configs]

    def work() -> None:
        ended = []
        store = open_store(f"{address}/{next(numbers)}")
        with closing(store.lock(WORKER_LOCK.format("1"))):
            pack = Pack(store, corpus, CPU, lambda kind, run, facts: ended.append((run, facts)))
            pack.apply({"prune": [], "release": [], "join": jobs})
            for _ in range(epochs):
                pack.train_epoch(members, packed=True)
            pack.suspend()
            pack.writer.close()
        assert {facts["status"] for _, facts in ended} == {"finished"}
        assert sorted(run for run, _ in ended) == sorted(members)

    return work


def wall_seconds(work: Work, cpu: list[float]) -> float:
    """Return the wall time of one call, and append the CPU time of this process to `cpu`."""
    begin, cpu_begin = time.perf_counter(), time.process_time()
    work()
    cpu.append(time.process_time() - cpu_begin)
    return time.perf_counter() - begin


@contextmanager
def s3_server() -> Iterator[None]:
    """Start a server with an empty bucket, and name it in the environment of this process."""
    import boto3

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.environ |= {**CREDENTIALS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
    try:
        while server.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        yield
    finally:
        server.terminate()
        server.wait()


def count_requests(delay: float) -> list[str]:
    """Delay every request of this process to S3, and return a list that records them."""
    from lmzoo.store.s3_bucket import _client

    requests: list[str] = []

    def before_send(request: Any, **_: Any) -> None:
        requests.append(f"{request.method} {request.url}")
        time.sleep(delay)

    _client().meta.events.register("before-send.s3", before_send)
    return requests


if __name__ == "__main__":
    run_command(main)
