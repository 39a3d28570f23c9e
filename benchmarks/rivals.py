"""Packs next to the sixty lines of JAX that a user would write, and modern cells next to the LSTM.

    python benchmarks/rivals.py                            on a CPU, one thread
    python benchmarks/gpu.py --parts rivals,host,modern    on a GPU

JAX trains the same minimal gated unit with a tied softmax, Adam and clipping: `vmap` over members,
`scan` over steps and tokens, one `jit` for an epoch. It is needed by these two scripts only:
`pip install jax`. It neither evaluates nor saves, and its products are in float32.
"""

# pyright: reportMissingImports=false
# JAX is no dependency.

import dataclasses
import functools
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from fuse import Shape, pack_members, packed_epoch, random_corpus, with_checkpoints
from measure import Ratio, Work, cpu_seconds, device_seconds, interleave, save, speedup, time_ratio
from torch.profiler import ProfilerActivity, profile

from lmzoo.base.command_line import run_command
from lmzoo.base.errors import UserError
from lmzoo.data.corpus import Corpus
from lmzoo.lab.store.local import Store

MAIN = Shape(64, 251, 32, 0, 100, 20, steps=40)
"""The main study."""
GPU_CASES = (
    *((dataclasses.replace(MAIN, P=P), 1.3) for P in (64, 256, 1, 1024)),
    (dataclasses.replace(MAIN, E=64, T=100), 2.5),
)
"""Shapes and goals: JAX's seconds over ours, checkpoints included."""
CPU_CASES = tuple(
    (dataclasses.replace(MAIN, P=P, T=T, steps=4), 1.0) for T in (20, 100) for P in (1, 4, 16)
)
TINY_CASES = ((Shape(2, 20, 8, 0, 4, 6, steps=3), None),)
MODERN = {"gla": 1.5, "gated_deltanet": 2.5, "mamba": 2.0}
"""Rows and goals: their seconds over the LSTM's."""
HOST_SECONDS = 0.003
"""Goal: seconds of an epoch of the main study in which the GPU waits for the host."""
UNROLL = 20
"""Tokens of the recurrence that JAX unrolls."""


def main(
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    tiny: Annotated[bool, typer.Option("--tiny", help="Test the script at tiny sizes.")] = False,
    out: Annotated[Path, typer.Option(help="The JSON file.")] = Path("runs/bench/rivals.json"),
) -> None:
    """Measure packs next to JAX on a CPU, in seconds of the process."""
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    torch.set_num_threads(1)
    cpu = torch.device("cpu")
    cases = TINY_CASES if tiny else CPU_CASES
    save(rivals(cases, cpu, rounds, timer=cpu_seconds, out=out), out)


def rivals(
    cases: Sequence[tuple[Shape, float | None]],
    device: torch.device,
    rounds: int,
    *,
    timer: Callable[[Work], float] | None = None,
    out: Path,
) -> list[Ratio]:
    """Return for each case JAX's seconds of an epoch over ours: bare, and with checkpoints.

    What is known is written after every case.
    """
    timer = timer or functools.partial(device_seconds, device=device)
    rows: list[Ratio] = []
    for shape, goal in cases:
        corpus = random_corpus(shape, shape.steps)
        members = pack_members(shape, corpus, device)
        epoch = packed_epoch(members, corpus)
        rival = jax_epoch(shape, corpus, device)
        for work in (epoch, epoch, rival):
            work()
        # Members are saved once a second, so that a measurement lasts as long.
        repeats = math.ceil(Store.save_seconds / timer(epoch))
        saving = with_checkpoints(epoch, members)
        block = functools.partial(_repeat, saving, repeats)
        works = {"bare": epoch, "saved": block, "jax": rival}
        bare, saved, jax = interleave(works, rounds, timer=timer).values()
        saved = [second / repeats for second in saved]
        at = f"{shape}, {shape.steps} steps"
        rows += [
            speedup("an epoch of a pack", at, "JAX, vmap and scan, float32", bare, jax),
            speedup("the same with checkpoints", at, "JAX, vmap and scan", saved, jax, goal),
        ]
        save(rows, out)
    return rows


def _repeat(work: Work, count: int) -> None:
    for _ in range(count):
        work()


def modern(shape: Shape, device: torch.device, rounds: int, *, has_goals: bool) -> list[Ratio]:
    """Return the seconds of an epoch of modern cells over those of the LSTM."""
    corpus = random_corpus(shape, shape.steps)
    works = {}
    for name in ("lstm_lm", *MODERN):
        works[name] = packed_epoch(pack_members(shape, corpus, device, row=name), corpus)
    timer = functools.partial(device_seconds, device=device)
    seconds = interleave(works, rounds, warmup=2, timer=timer)
    return [
        time_ratio(
            f"an epoch of {name}", str(shape), "lstm_lm", seconds[name], seconds["lstm_lm"],
            goal if has_goals else None,
        )
        for name, goal in MODERN.items()
    ]  # fmt: skip


def host(shape: Shape, device: torch.device, rounds: int, *, has_goals: bool) -> list[Ratio]:
    """Return the seconds of an epoch in which the GPU waits for the host, over the goal."""
    corpus = random_corpus(shape, shape.steps)
    epoch = packed_epoch(pack_members(shape, corpus, device), corpus)
    timer = functools.partial(device_seconds, device=device)
    seconds = interleave({"epoch": epoch}, rounds, warmup=3, timer=timer)["epoch"]
    busy = busy_seconds(epoch, device)
    waits = [max(0.0, second - busy) for second in seconds]
    return [
        time_ratio("time of the host", str(shape), "its goal", waits, [HOST_SECONDS] * rounds,
                   1.0 if has_goals else None),
        time_ratio("an epoch of a pack", str(shape), "its GPU is busy", seconds,
                   [busy or HOST_SECONDS] * rounds),
    ]  # fmt: skip


def busy_seconds(work: Work, device: torch.device) -> float:
    """Return the seconds of one call in which the GPU computes or copies; 0 on a CPU."""
    if device.type != "cuda":
        work()
        return 0.0
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiled:
        work()
        torch.cuda.synchronize(device)
    return sum(event.self_device_time_total for event in profiled.key_averages()) / 1e6


def jax_epoch(shape: Shape, corpus: Corpus, device: torch.device) -> Callable[[], float]:
    """Return an epoch in JAX, which returns the mean loss; the first call compiles it."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        import jax
    except ImportError:
        raise UserError("the rivals need JAX; run `pip install jax`") from None
    place = jax.devices("gpu" if device.type == "cuda" else "cpu")[0]
    rng = np.random.default_rng(0)
    rows, members = shape.B * shape.steps, range(shape.P)
    orders = [rng.permutation(rows).reshape(shape.steps, shape.B) for _ in members]
    with jax.default_device(place), jax.default_matmul_precision("highest"):
        data = jax.numpy.array(corpus.train.tokens.cpu().numpy())
        order = jax.numpy.array(np.stack(orders, 1))
        epoch = jax.jit(functools.partial(_train, data), donate_argnums=0)
        keys = jax.random.split(jax.random.key(0), shape.P)
        weights = jax.vmap(functools.partial(_weights, shape))(keys)
        zeros = [jax.tree.map(jax.numpy.zeros_like, weights) for _ in range(2)]
        state = [(weights, *zeros, jax.numpy.zeros(shape.P))]

    def run() -> float:
        with jax.default_device(place), jax.default_matmul_precision("highest"):
            state[0], losses = epoch(state[0], order)
            return float(losses.mean())

    return run


def _train(data: Any, state: Any, order: Any) -> Any:
    """Train all members for an epoch; `order` is (steps, P, B)."""
    import jax

    step = jax.vmap(functools.partial(_step, data))
    return jax.lax.scan(step, state, order)


def _step(data: Any, state: Any, rows: Any) -> Any:
    """Train one member on one batch: clipped gradients, Adam."""
    import jax
    import jax.numpy as jnp

    weights, m, v, count = state
    loss, g = jax.value_and_grad(_loss)(weights, data[rows])
    norm = jnp.sqrt(sum(jnp.sum(x * x) for x in jax.tree.leaves(g)))
    g = jax.tree.map(lambda x: x * jnp.minimum(1.0, 1.0 / (norm + 1e-6)), g)
    count += 1
    m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
    v = jax.tree.map(lambda a, b: 0.999 * a + 0.001 * b * b, v, g)
    first, second = 1 - 0.9**count, 1 - 0.999**count

    def update(x: Any, m: Any, v: Any) -> Any:
        return x - 1e-3 * (m / first) / (jnp.sqrt(v / second) + 1e-8)

    return (jax.tree.map(update, weights, m, v), m, v, count), loss


def _loss(weights: Any, tokens: Any) -> Any:
    """Return the mean NLL of a minimal gated unit with a tied softmax."""
    import jax
    import jax.numpy as jnp

    x, width = weights["embedding"][tokens[:, :-1]], weights["h0"].size
    inputs = jnp.concatenate([weights["xf"], weights["xh"]], 1)
    biases = jnp.concatenate([weights["bf"], weights["bh"]])

    def cell(h: Any, projected: Any) -> Any:
        f = jax.nn.sigmoid(projected[:, :width] + h @ weights["hf"])
        c = jnp.tanh(projected[:, width:] + (h * f) @ weights["hh"])
        h = (1 - f) * h + f * c
        return h, h

    start = jnp.broadcast_to(weights["h0"], (len(tokens), width))
    _, states = jax.lax.scan(cell, start, (x @ inputs + biases).swapaxes(0, 1), unroll=UNROLL)
    logs = jax.nn.log_softmax(states.swapaxes(0, 1) @ weights["embedding"].T)
    return -jnp.take_along_axis(logs, tokens[:, 1:, None], -1).mean()


def _weights(shape: Shape, key: Any) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    keys, width = jax.random.split(key, 5), shape.E
    weights: dict[str, Any] = {"embedding": jax.random.normal(keys[0], (shape.V, width)) / 2}
    for name, own in zip(("xf", "hf", "xh", "hh"), keys[1:], strict=True):
        bound = width**-0.5
        weights[name] = jax.random.uniform(own, (width, width), minval=-bound, maxval=bound)
    zeros = jnp.zeros(width)
    return {**weights, "bf": zeros, "bh": zeros, "h0": jnp.ones(width)}


if __name__ == "__main__":
    run_command(main)
