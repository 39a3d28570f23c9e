"""torch's own steps, and no compiler that nobody asked for."""

import copy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lmzoo.train.optimisers import make_optimiser
from lmzoo.train.recipe import Optimiser, Recipe


def parameters() -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(3, 4, generator=generator)) for _ in range(2)]


def theirs(name: Optimiser, given: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    if name is Optimiser.RMSPROP:
        return torch.optim.RMSprop(given, lr=0.1, alpha=0.99, eps=0.01, weight_decay=0.1)
    kind = torch.optim.Adam if name is Optimiser.ADAM else torch.optim.AdamW
    return kind(given, lr=0.1, weight_decay=0.1, fused=True)


@pytest.mark.parametrize("name", list(Optimiser))
def test_steps_are_torchs_own(name: Optimiser) -> None:
    ours, rival = parameters(), parameters()
    recipe = Recipe(optimiser=name, lr=0.1, weight_decay=0.1)
    optimiser, other = make_optimiser(recipe, ours), theirs(name, rival)
    for step in range(6):
        if step == 3:  # as after a death
            fresh = make_optimiser(recipe, ours)
            fresh.load_state_dict(copy.deepcopy(optimiser.state_dict()))
            optimiser = fresh
        for one, given in ((optimiser, ours), (other, rival)):
            one.zero_grad()
            sum((p**4).sum() for p in given).backward()
            one.step()
        assert all(map(torch.equal, ours, rival))
    assert not any(p.grad_fn or p.isnan().any() for p in ours)
    assert not torch.equal(ours[0], parameters()[0])


def test_training_does_not_import_the_compiler(tmp_path: Path) -> None:
    """Neither the first epochs nor those of a process that goes on from them."""
    text = tmp_path / "text.txt"
    text.write_text("a man runs\na dog sits\n" * 40)
    for epochs in ("1", "2"):
        command = [sys.executable, "-X", "importtime", "-m", "lmzoo", "train", "DLM46"]
        asked = ["--corpus", f"text:{text}", "--set", "model.width=4", "--epochs", epochs]
        done = subprocess.run(
            [*command, *asked, "--out", str(tmp_path)], check=True, capture_output=True, text=True
        )
        imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
        assert "torch.optim" in imported
        assert not {"torch._dynamo", "torch._inductor"} & imported
