"""A training step of DLM46 on words, and the formulation in which it was published.

    python benchmarks/words.py --out runs/bench/words.json [--corpus multi30k_en --data-dir DIR]

E = 128, K = 400, B = 280. The rivals have the same weights, loss and optimiser, and two differences
from ours: the K x V table log P(v | z) is computed completely and its columns are gathered at the
targets, and the recurrence is the loop of `scan.py` with projections and multipliers inside.

There are two ways to gather, and both are measured. `torch.gather` over the table expanded to the
batch fills B x K x V zeros in its backward, 6.5 GB here. An index of the table's rows does not.

Each side is a process of its own, with its own peak memory: the growth of the resident set since
before the first step. The sides are interleaved. Without a corpus, the data are random tokens at 20
positions with V = 14,450.
"""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any, cast

import torch
import typer
from measure import Ratio, memory_ratio, save, speedup
from scan import published, sliced
from torch import Tensor

from lmzoo import zoo
from lmzoo.command_line import run_command
from lmzoo.contract import LanguageModel, Task
from lmzoo.data.batches import epoch_batches, gather_batch
from lmzoo.data.corpus import open_corpus

BATCH, WIDTH, COMPONENTS, VOCAB, LENGTH = 280, 128, 400, 14_450, 20
SIDES = {
    "ours": "",
    "gathered": "published, torch.gather over the batch",
    "indexed": "published, the table indexed",
}


def main(
    corpus: Annotated[str | None, typer.Option(help="Default: random tokens.")] = None,
    data_dir: Annotated[Path | None, typer.Option()] = None,
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    steps: Annotated[int, typer.Option(min=1, help="Steps of a side in a round.")] = 3,
    side: Annotated[str | None, typer.Option(hidden=True)] = None,
    out: Annotated[Path, typer.Option(help="The JSON file.")] = Path("runs/bench/words.json"),
) -> None:
    """Measure CPU time and peak memory of a step."""
    if side is not None:
        typer.echo(json.dumps(measure_side(side, corpus, data_dir, steps)))
        return
    command = [sys.executable, __file__, "--steps", str(steps)]
    command += [] if corpus is None else ["--corpus", corpus]
    command += [] if data_dir is None else ["--data-dir", str(data_dir)]
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in SIDES}
    for _ in range(rounds):
        for name in SIDES:
            done = subprocess.run([*command, "--side", name], capture_output=True, check=True)
            results[name].append(json.loads(done.stdout))
    rows = [
        *compare(results["ours"], results["gathered"], SIDES["gathered"], goals=(8, 0.5)),
        *compare(results["ours"], results["indexed"], SIDES["indexed"], goals=(None, None)),
    ]
    save(rows, out)


def compare(
    ours: list[dict[str, Any]],
    theirs: list[dict[str, Any]],
    rival: str,
    goals: tuple[float | None, float | None],
) -> list[Ratio]:
    """Return the rows of time and memory, after a check that both losses are equal."""
    assert abs(ours[0]["loss"] - theirs[0]["loss"]) < 1e-3, "the sides are different models"
    what, at = "training step of DLM46", ours[0]["at"]
    seconds = [[step["seconds"] for step in side] for side in (ours, theirs)]
    memory = [[step["megabytes"] for step in side] for side in (ours, theirs)]
    return [
        speedup(what, at, rival, *seconds, goal=goals[0]),
        memory_ratio(what, at, rival, *memory, goal=goals[1]),
    ]


def measure_side(
    side: str, corpus: str | None, data_dir: Path | None, steps: int
) -> dict[str, Any]:
    """Return the CPU seconds of a step and the growth of memory of one side in this process."""
    torch.set_num_threads(1)
    tokens, lengths, task, name = _data(corpus, data_dir)
    fields = {"width": WIDTH, "emission": {"components": COMPONENTS}}
    model = zoo.build(zoo.config("DLM46", **fields), task, seed=0)
    if side != "ours":
        use_published_formulation(model, gathered=side == "gathered")
    optimiser = torch.optim.Adam(model.parameters())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin, loss = 0.0, torch.zeros(())
    for step in range(steps + 1):
        if step == 1:  # the first is a warm-up and creates the optimiser's state
            begin = time.process_time()
        optimiser.zero_grad()
        scores = model.log_prob(tokens, lengths)
        mean = -scores.sum() / (lengths - 1).sum()
        loss = mean.detach() if step == 0 else loss
        mean.backward()
        optimiser.step()
    seconds = (time.process_time() - begin) / steps
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    at = f"{name}, V={task.vocab:,}, E={WIDTH}, K={COMPONENTS}, B={len(tokens)}"
    return {"seconds": seconds, "megabytes": grown / 1024, "loss": loss.item(), "at": at}


def use_published_formulation(model: LanguageModel, *, gathered: bool) -> None:
    """Replace the model's formulation by the published one; its weights stay."""
    cell, emission = cast("Any", model.cell), cast("Any", model.emission)
    cell.scan = lambda x, start: published(cell, x, start, sliced)

    def at_targets(targets: Tensor, tokens: Tensor) -> Tensor:
        table = emission.log_prob_table(tokens)
        if not gathered:
            return table.T[targets]
        index = targets[:, None].expand(-1, len(table), -1)
        return table.expand(len(targets), -1, -1).gather(2, index).mT

    emission.token_log_probs = at_targets


def _data(corpus: str | None, data_dir: Path | None) -> tuple[Any, Any, Task, str]:
    if corpus is None:
        torch.manual_seed(0)
        tokens = torch.randint(VOCAB, (BATCH, LENGTH))
        return tokens, torch.full((BATCH,), LENGTH), Task(vocab=VOCAB, length=LENGTH), "random"
    data = open_corpus(corpus, data_dir)
    rows = epoch_batches(data.train.lengths, BATCH, seed=0, epoch=0)[0]
    batch = gather_batch(data.train, rows)
    return batch.tokens, batch.lengths, data.task, data.name


if __name__ == "__main__":
    run_command(main)
