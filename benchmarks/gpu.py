"""What a GPU makes of the recurrences, of fused members and of S0's word table.

    python benchmarks/gpu.py [--parts scan,fused,growth,table] [--data-dir DIR]
    python benchmarks/gpu.py --device cpu --tiny          the same at sizes that say nothing

    scan     the minimal gated unit's sweeps, forward and backward, replayed from a CUDA graph,
             beside cuDNN's torch.nn.GRU and the loop as published
    fused    64 members as one program, beside the same 64 one after another in one process,
             and in 8 processes that share the device
    growth   1 to 256 members as one program, beside the floors of floors.py
    table    the whole of word_table.py, beside ten minutes

Needs this package, torch and a GPU. Each part is written to its own JSON as soon as it is done.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import torch
import typer
from device_clock import in_turn, seconds_of
from floors import bandwidth_floor, matrix_floor, rates_of
from fuse import Shape, random_corpus
from measure import Ratio, faster, save, slower, table
from scan import published, sliced
from sharing import members, one_by_one, shared
from torch import Tensor, nn
from word_table import Table, random_captions, train_all
from word_table import members as table_members

from lmzoo.cells.base import CELLS
from lmzoo.command_line import run_command
from lmzoo.data.corpus import Corpus
from lmzoo.data.open import open_corpus
from lmzoo.errors import UserError
from lmzoo.train.capture import stepper
from lmzoo.train.capture.recorder import Work
from lmzoo.train.packed.trainer import train_packed_epoch
from lmzoo.train.recipe import RECIPES
from lmzoo.train.trainer import Training

FUSED, WORDS = Shape(64, 200, 32, 32, 100, 20), Table()


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How large everything is; the goals are for these."""

    batch: int = 280
    width: int = 128
    lengths: tuple[int, ...] = (20, 100)
    fused: Shape = FUSED
    processes: int = 8
    growth: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256)
    steps: int = 16
    """Steps of an epoch."""
    times: int = 20
    """Sweeps timed at once."""
    side: int = 8192
    """Of the matrices that tell how fast the device is."""
    table: Table = WORDS
    judged: bool = True
    """Whether the goals apply."""

    def goal(self, value: float) -> float | None:
        """The goal, if there are goals at these sizes."""
        return value if self.judged else None


TINY = Sizes(
    judged=False,
    batch=4, width=8, lengths=(5,), fused=Shape(4, 20, 8, 4, 4, 6), processes=2, growth=(1, 2),
    steps=4, times=1, side=64,
    table=Table(
        width=8, components=4, seeds=1, epochs=1, vocab=30, train=12, valid=4, length=9,
        recipe=dataclasses.replace(RECIPES["published"], batch=6),
    ),
)  # fmt: skip


def main(
    parts: Annotated[str, typer.Option(help="Which, in this order.")] = "scan,fused,growth,table",
    device: Annotated[str, typer.Option()] = "cuda",
    rounds: Annotated[int, typer.Option(min=1)] = 7,
    data_dir: Annotated[Path | None, typer.Option(help="Multi30k; else random words.")] = None,
    tiny: Annotated[bool, typer.Option("--tiny", help="To try the script out.")] = False,  # noqa: FBT002
    out: Annotated[Path, typer.Option(help="Folder of the JSON.")] = Path("runs/bench"),
) -> None:
    """Measure on one device."""
    place, sizes = _device(device), TINY if tiny else Sizes()
    known = {
        "scan": lambda: scans(sizes, place, rounds),
        "fused": lambda: fused(sizes, place, rounds),
        "growth": lambda: growth(sizes, place, rounds),
        "table": lambda: word_table(sizes, place, data_dir),
    }
    chosen = parts.split(",")
    if unknown := [part for part in chosen if part not in known]:
        raise UserError(f"no part {unknown[0]!r}; there are {', '.join(known)}")
    typer.echo(f"{_named(place)}, torch {torch.__version__}")
    for part in chosen:
        rows = known[part]()
        save(rows, out / f"gpu-{part}.json")
        typer.echo(table([vars(row) for row in rows]))


def _device(name: str) -> torch.device:
    if name == "cpu":
        torch.set_num_threads(1)
        return torch.device(name)
    if name != "cuda":
        raise UserError(f"--device {name!r} is neither cuda nor cpu")
    if not torch.cuda.is_available():
        raise UserError(
            "--device cuda: torch sees no GPU; --device cpu --tiny tries the script out"
        )
    return torch.device("cuda", 0)


def _named(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def scans(sizes: Sizes, device: torch.device, rounds: int) -> list[Ratio]:
    """Rows at each length; without a GPU nothing is replayed and the first two sides are one."""
    return [row for length in sizes.lengths for row in _scan(sizes, length, device, rounds)]


def _scan(sizes: Sizes, length: int, device: torch.device, rounds: int) -> list[Ratio]:
    torch.manual_seed(0)
    batch, width = sizes.batch, sizes.width
    cell = CELLS.build(CELLS.parse("mgu"), width, length).to(device)
    library = nn.GRU(width, width).to(device)
    x, upstream = torch.randn(2, batch, length, width, device=device).unbind()
    start = torch.ones(batch, width, device=device)
    first, first_upstream = (one.transpose(0, 1).contiguous() for one in (x, upstream))
    parameters = [*cell.parameters(), *library.parameters()]

    def trained(forward: Callable[[Tensor], Tensor], given: Tensor, back: Tensor) -> Work:
        def once() -> None:
            for parameter in parameters:
                parameter.grad = None
            forward(given.detach().requires_grad_()).backward(back)

        return once

    ours = trained(lambda x: cell.scan(x, start), x, upstream)
    seconds = in_turn(
        {
            "replayed": _replayed(ours, device),
            "as it is": ours,
            "torch.nn.GRU": trained(lambda x: library(x, start[None])[0], first, first_upstream),
            "published loop": trained(lambda x: published(cell, x, start, sliced), x, upstream),
        },
        rounds,
        device,
        times=sizes.times,
    )
    replayed, plain, theirs, loop = seconds.values()
    what, at = "MGU forward + backward", f"B={batch}, H={width}, T={length}"
    near, far = (sizes.goal(1.5), sizes.goal(30.0)) if length == 100 else (None, None)
    return [
        slower(f"{what}, replayed", at, "torch.nn.GRU", replayed, theirs, near),
        faster(f"{what}, replayed", at, "published loop", replayed, loop, far),
        slower(f"{what}, as it is", at, "torch.nn.GRU", plain, theirs),
        faster(f"{what}, as it is", at, "published loop", plain, loop),
    ]


def _replayed(work: Work, device: torch.device) -> Work:
    recorder = stepper.device_recorder(device)
    if recorder is None:
        return work
    for _ in range(recorder.warmup_steps):
        if waits := recorder.run(work):
            raise RuntimeError(waits)
    return recorder.record(work)


def fused(sizes: Sizes, device: torch.device, rounds: int) -> list[Ratio]:
    """All members at once, beside one after another and beside processes that share."""
    shape, steps, count = sizes.fused, sizes.steps, sizes.processes
    corpus = random_corpus(shape, steps)
    together, alone = members(shape, corpus, device), members(shape, corpus, device)
    seconds = in_turn(
        {
            "fused": at_once(together, corpus),
            "alone": one_by_one(alone, corpus),
        },
        rounds,
        device,
    )
    in_processes = shared(shape, steps, device, count, rounds)
    what, at, ours = "fused members", str(shape), seconds["fused"]
    return [
        faster(what, at, "one after another", ours, seconds["alone"], sizes.goal(25.0)),
        faster(what, at, f"{count} processes sharing the device", ours, in_processes),
    ]


def at_once(trainings: list[Training], corpus: Corpus) -> Callable[[], object]:
    """An epoch of all members as one program."""
    return lambda: train_packed_epoch(trainings, corpus)


def growth(sizes: Sizes, device: torch.device, rounds: int) -> list[Ratio]:
    """A step of more and more members: what one costs, and what the device could do at best."""
    rates, rows, single = rates_of(device, side=sizes.side), [], []
    for count in sizes.growth:
        shape = dataclasses.replace(sizes.fused, P=count)
        corpus = random_corpus(shape, sizes.steps)
        some = members(shape, corpus, device)
        epoch = in_turn({"all": at_once(some, corpus)}, rounds, device)["all"]
        step = [one / sizes.steps for one in epoch]
        single = single or step
        at, each = str(shape), [one / count for one in step]
        floors = {
            "the floor of its products": matrix_floor(shape, rates),
            "the floor of its memory": bandwidth_floor(shape, rates),
        }
        rows.append(faster("a member's share of a step", at, "the only member's", each, single))
        rows += [
            slower("fused step", at, name, step, [floor] * len(step))
            for name, floor in floors.items()
        ]
    return rows


def word_table(sizes: Sizes, device: torch.device, data_dir: Path | None) -> list[Ratio]:
    """Every row of S0's word table with every seed, once."""
    size = sizes.table
    corpus = random_captions(size)
    if data_dir is not None:
        corpus = open_corpus({"name": "multi30k_en", "split": "seed"}, data_dir)
    all_of_it = table_members(size, corpus, device)
    programs: list[int] = []
    took = seconds_of(lambda: programs.append(train_all(all_of_it, corpus, size.epochs)), device)
    at = f"{size}, {corpus.name}, V={len(corpus.vocabulary):,}, {programs[0]} programs"
    return [slower("S0's word table", at, "10 minutes", [took], [600.0], sizes.goal(1.0))]


if __name__ == "__main__":
    run_command(main)
