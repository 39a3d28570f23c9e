"""Executes the lines of README.md and of the notebook in a process that is not as usual.

python -m tests.odd_process KIND    prints the numbers that come out, as JSON
"""

import contextlib
import importlib
import json
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

from tests.ambient import STATES
from tests.docs.pages import ROOT, blocks


@contextlib.contextmanager
def reloaded() -> Iterator[None]:
    import lmzoo
    from lmzoo import api

    # As a notebook with autoreload does.
    importlib.reload(api)
    importlib.reload(lmzoo)
    yield


@contextlib.contextmanager
def other_thread() -> Iterator[None]:
    """A thread trains a model with noise meanwhile."""
    import lmzoo

    def train():
        model = lmzoo.build("gru_vae", "captions", width=8)
        records = model.fit(3, progress=False)
        found.append([record["valid_token"] for record in records])

    found: list[list[float]] = []
    train()
    thread = threading.Thread(target=train)
    thread.start()
    yield
    thread.join()
    assert found[0] == found[1]


@contextlib.contextmanager
def own_ray() -> Iterator[None]:
    """The user's Ray has a namespace, an environment, and an actor that has half of a CPU."""
    import ray

    environment = {"env_vars": {"MINE": "1"}}
    how: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False}
    ray.init(num_cpus=2, namespace="mine", runtime_env=environment, **how)

    @ray.remote(num_cpus=0.5)
    class Mine:
        def answer(self) -> str:
            return os.environ["MINE"]

    mine = Mine.options(name="mine").remote()
    yield
    by_name = ray.get_actor("mine")
    assert ray.get(mine.answer.remote()) == "1"
    assert ray.get(by_name.answer.remote()) == "1"


KINDS: dict[str, Any] = {
    "plain": contextlib.nullcontext, "autocast": STATES["autocast"], "float64": STATES["float64"],
    "reloaded": reloaded, "other thread": other_thread, "own Ray": own_ray,
}  # fmt: skip


def executed(code: str) -> dict[str, Any]:
    """Execute code; return the losses, scores and samples of its models, and its ranking."""
    names: dict[str, Any] = {}
    exec(code, names)
    found: dict[str, Any] = {"ranking": names["ranking"]["loss"].to_list()}
    for name in {"model", "cut"} & names.keys():
        model = names[name]
        losses = [record["valid_token"] for record in model.records]
        score = model.score("a man is running")
        found[name] = losses, model.test().token, score, model.sample(2)
    return found


def readme_code() -> str:
    codes = [block.code for block in blocks(ROOT / "README.md")]
    return next(code for code in codes if "import lmzoo" in code)


def notebook_code() -> str:
    notebook = json.loads((ROOT / "docs/notebooks/first_steps.ipynb").read_text())
    lines = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            # The lines of a cell have their ends, but for the last one.
            lines += cell["source"] + ["\n"]
    return "".join(lines)


if __name__ == "__main__":
    with KINDS[sys.argv[1]]():
        numbers = [executed(readme_code()), executed(notebook_code())]
    sys.stdout.write(f"\n{json.dumps(numbers)}\n")
