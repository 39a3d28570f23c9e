"""The optimisers take torch's steps and do not import torch's compiler."""

import copy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lmzoo.train.optimisers import make_optimiser
from lmzoo.train.recipe import Optimiser, Recipe


def new_parameters() -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(3, 4, generator=generator)) for _ in range(2)]


def torch_optimiser(name: Optimiser, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    if name is Optimiser.RMSPROP:
        return torch.optim.RMSprop(parameters, lr=0.1, alpha=0.99, eps=0.01, weight_decay=0.1)
    if name is Optimiser.SGD:
        return torch.optim.SGD(parameters, lr=0.01, weight_decay=0.1)
    cls = torch.optim.Adam if name is Optimiser.ADAM else torch.optim.AdamW
    return cls(parameters, lr=0.1, betas=(0.9, 0.95), weight_decay=0.1, fused=True)


@pytest.mark.parametrize("name", [name for name in Optimiser if name is not Optimiser.MUON])
def test_steps_equal_those_of_torch(name: Optimiser) -> None:
    actual, expected = new_parameters(), new_parameters()
    lr = 0.01 if name is Optimiser.SGD else 0.1
    recipe = Recipe(optimiser=name, lr=lr, weight_decay=0.1, beta2=0.95)
    optimiser, reference = (
        make_optimiser(recipe, [{"params": actual}]),
        torch_optimiser(name, expected),
    )
    for step in range(6):
        if step == 3:  # as if the process had been restarted
            fresh = make_optimiser(recipe, [{"params": actual}])
            fresh.load_state_dict(copy.deepcopy(optimiser.state_dict()))
            optimiser = fresh
        for current, parameters in ((optimiser, actual), (reference, expected)):
            current.zero_grad()
            sum((p**4).sum() for p in parameters).backward()
            current.step()
        assert all(map(torch.equal, actual, expected))
    assert not any(p.grad_fn or p.isnan().any() for p in actual)
    assert not torch.equal(actual[0], new_parameters()[0])


def test_no_training_imports_the_compiler(tmp_path: Path) -> None:
    """Neither a new run, nor one that is resumed, a replayed pack, or counting parameters."""
    text = tmp_path / "text.txt"
    text.write_text("a man runs\na dog sits\n" * 40)
    options = ["--corpus", f"text:{text}", "--set", "model.width=4", "--out", str(tmp_path)]
    process = subprocess.run(
        [sys.executable, "-c", TRAIN, "train", "DLM46", *options],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    imported = set(process.stdout.splitlines()[-1].split())
    assert "torch.optim" in imported
    assert not {"torch._dynamo", "torch._inductor"} & imported


TRAIN = """
import sys
from lmzoo.laws_of_training.packing import random_corpus
from lmzoo.train.kept_trainers import KeptTrainers
from lmzoo.train.recipe import Recipe
from lmzoo.train.trainer import Training
from lmzoo.trainables.parameter_budget import count_parameters
from tests.cli.run_lmzoo import run_lmzoo
from tests.tiny import tiny
for epochs in ("1", "2"):
    assert run_lmzoo(*sys.argv[1:], "--epochs", epochs) == 0
members = [Training(tiny("recurrent_lm"), Recipe(batch=5), seed) for seed in range(2)]
trainers = KeptTrainers()
for _ in range(3):
    trainers.train_epoch(members, random_corpus(members[0].model))
assert trainers._own[members[0]].stepper.replays
for model in map(tiny, ("DLM46", "gpt")):
    size = sum(weight.numel() for weight in model.parameters())
    assert count_parameters(model.config, model.task) == size
print()
print(*sys.modules)
"""
