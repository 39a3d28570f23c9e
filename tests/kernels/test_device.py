"""The device of a model: data moves to it, and a GPU that Ray granted is used or refused."""

from pathlib import Path

import pytest
import torch

from lmzoo.base.errors import UserError
from lmzoo.data.corpus import open_corpus
from lmzoo.kernels import device
from lmzoo.kernels.device import CPU, device_name, device_of, granted_gpu
from tests.user_errors import raises_user_error

META = torch.device("meta")


def test_moving_a_corpus_to_its_own_device_copies_nothing():
    fields = {"name": "copy", "train": 3, "valid": 2, "test": 2}
    corpus = open_corpus(fields)
    moved = corpus.to(META)
    for part in (moved.train, moved.valid, moved.test):
        columns = [part.tokens, part.lengths, *part.sources]
        assert {column.device for column in columns} == {META}
    # It is there already.
    assert corpus.train.to(CPU) is corpus.train
    assert moved.task == corpus.task


def test_a_cpu_is_named_by_its_model():
    name = device_name(CPU)
    assert name
    assert name == name.strip()
    lines = ""
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text()
    # Some processors state no name there.
    assert f": {name}\n" in lines or "model name" not in lines


def test_a_module_without_parameters_is_on_the_cpu():
    nothing = torch.nn.Identity()
    linear = torch.nn.Linear(2, 2, device="meta")
    assert device_of(nothing) == CPU
    assert device_of(linear) == META


CAN_USE_A_GPU = torch.cuda.is_available()


@pytest.mark.skipif(CAN_USE_A_GPU, reason="torch can use a GPU here")
def test_a_granted_gpu_that_torch_cannot_use_is_an_error_that_names_the_node(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    with pytest.raises(UserError) as error:
        granted_gpu("gpu-3")
    message = str(error.value)
    assert message.startswith("node gpu-3 granted a GPU that torch cannot use (torch 2.")
    assert "CUDA_VISIBLE_DEVICES=3" in message
    assert "use --device cpu" in message
    assert "\n" not in message


def test_a_granted_gpu_without_a_compiler_is_an_error_that_says_what_is_missing(monkeypatch):
    def fail(*_):
        raise RuntimeError("Failed to find C compiler. Please specify via CC")

    pytest.importorskip("triton", reason="Triton is installed on Linux x86-64 only")
    monkeypatch.setattr(device, "GPU", META)
    monkeypatch.setattr(device, "has_gpu_kernels", lambda _: True)
    monkeypatch.setattr("lmzoo.kernels.gpu.rows.take_rows", fail)
    with raises_user_error("node gpu-3", "Failed to find C compiler", "gcc, python3-dev"):
        granted_gpu("gpu-3")


def test_a_share_of_a_gpu_is_a_share_of_its_memory(monkeypatch):
    limits = []

    def record(share, gpu):
        limits.append((share, gpu))

    monkeypatch.setattr(device, "GPU", META)  # a device on which every operation works
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", record)
    assert granted_gpu("gpu-3") == META
    assert granted_gpu("gpu-3", 0.25) == META
    assert limits == [(0.25, META)]
