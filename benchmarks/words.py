"""One training step of DLM46 on words, beside the formulation it was published in.

    python benchmarks/words.py --out runs/bench/words.json [--corpus multi30k_en --data-dir DIR]

E = 128, K = 400, B = 280. The rivals have the same weights, the same loss and the same
optimiser, and differ in two places as zoo.md 1.4 and 2.2 write them: the K x V table
log P(v | z) is computed whole and its columns are gathered at the targets, and the
recurrence is the loop of `scan.py`, projections and multipliers inside.

"Gathered" can be written in two ways, and they are far apart. `torch.gather` over the
table expanded to the batch is the word taken literally; its way back fills B x K x V
zeros, 6.5 GB here. An index of the table's rows needs none of that. Both are measured.

Each side is a process of its own, so that its peak memory is its own: what the resident
set grows by from before the first step. The sides take turns. Without a corpus, random
tokens of 20 positions at V = 14,450.
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
from measure import Ratio, faster, save, shrunk, table
from scan import published, sliced
from torch import Tensor

from lmzoo import zoo
from lmzoo.command_line import run_command
from lmzoo.contract import LanguageModel, Task
from lmzoo.data.batches import epoch_batches, gather_batch
from lmzoo.data.open import open_corpus

BATCH, WIDTH, COMPONENTS, VOCAB, LENGTH = 280, 128, 400, 14_450, 20
SIDES = {
    "ours": "",
    "gathered": "published, torch.gather over the batch",
    "indexed": "published, the table indexed",
}


def main(
    corpus: Annotated[str | None, typer.Option(help="Without it, random tokens.")] = None,
    data_dir: Annotated[Path | None, typer.Option()] = None,
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    steps: Annotated[int, typer.Option(min=1, help="Steps of a side in a round.")] = 3,
    side: Annotated[str | None, typer.Option(hidden=True)] = None,
    out: Annotated[Path, typer.Option(help="Where the JSON goes.")] = Path("runs/bench/words.json"),
) -> None:
    """Measure CPU time and peak memory of a step."""
    if side is not None:
        typer.echo(json.dumps(one_side(side, corpus, data_dir, steps)))
        return
    command = [sys.executable, __file__, "--steps", str(steps)]
    command += [] if corpus is None else ["--corpus", corpus]
    command += [] if data_dir is None else ["--data-dir", str(data_dir)]
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in SIDES}
    for _ in range(rounds):
        for name in SIDES:
            done = subprocess.run([*command, "--side", name], capture_output=True, check=True)
            found[name].append(json.loads(done.stdout))
    rows = [
        *compare(found["ours"], found["gathered"], SIDES["gathered"], goals=(8, 0.5)),
        *compare(found["ours"], found["indexed"], SIDES["indexed"], goals=(None, None)),
    ]
    save(rows, out)
    typer.echo(table([vars(row) for row in rows]))


def compare(
    ours: list[dict[str, Any]],
    theirs: list[dict[str, Any]],
    rival: str,
    goals: tuple[float | None, float | None],
) -> list[Ratio]:
    """The rows for time and for memory, after seeing that both sides lost the same."""
    assert abs(ours[0]["loss"] - theirs[0]["loss"]) < 1e-3, "the sides are not one model"
    what, at = "training step of DLM46", ours[0]["at"]
    seconds = [[one["seconds"] for one in side] for side in (ours, theirs)]
    memory = [[one["megabytes"] for one in side] for side in (ours, theirs)]
    return [
        faster(what, at, rival, *seconds, goal=goals[0]),
        shrunk(what, at, rival, *memory, goal=goals[1]),
    ]


def one_side(side: str, corpus: str | None, data_dir: Path | None, steps: int) -> dict[str, Any]:
    """CPU seconds of a step and megabytes of growth, of one formulation in this process."""
    torch.set_num_threads(1)
    tokens, lengths, task, name = _data(corpus, data_dir)
    fields = {"width": WIDTH, "emission": {"components": COMPONENTS}}
    model = zoo.build(zoo.config("DLM46", **fields), task, seed=0)
    if side != "ours":
        as_published(model, gathered=side == "gathered")
    optimiser = torch.optim.Adam(model.parameters())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin, loss = 0.0, torch.zeros(())
    for step in range(steps + 1):
        if step == 1:  # the first is a warm-up, and makes the optimiser's state
            begin = time.process_time()
        optimiser.zero_grad()
        scores = model.log_prob(tokens, lengths)
        found = -scores.sum() / (lengths - 1).sum()
        loss = found.detach() if step == 0 else loss
        found.backward()
        optimiser.step()
    seconds = (time.process_time() - begin) / steps
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    at = f"{name}, V={task.vocab:,}, E={WIDTH}, K={COMPONENTS}, B={len(tokens)}"
    return {"seconds": seconds, "megabytes": grown / 1024, "loss": loss.item(), "at": at}


def as_published(model: LanguageModel, *, gathered: bool) -> None:
    """Give the model its published formulation; its weights stay."""
    cell, emission = cast("Any", model.cell), cast("Any", model.emission)
    cell.scan = lambda x, start: published(cell, x, start, sliced)

    def at_targets(targets: Tensor, words: Tensor) -> Tensor:
        whole = emission.log_prob_table(words)
        if not gathered:
            return whole.T[targets]
        where = targets[:, None].expand(-1, len(whole), -1)
        return whole.expand(len(targets), -1, -1).gather(2, where).mT

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
