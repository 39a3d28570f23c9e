"""Data moves to the device of a model; the order of the data does not depend on the device."""

import torch

from lmzoo.data.batches import epoch_batches
from lmzoo.data.open import open_corpus
from lmzoo.device import CPU, device_of

META = torch.device("meta")


def test_moving_a_corpus_to_its_own_device_copies_nothing() -> None:
    corpus = open_corpus({"name": "copy", "train": 3, "valid": 2, "test": 2})
    moved = corpus.to(META)
    for part in (moved.train, moved.valid, moved.test):
        assert {column.device for column in (part.tokens, part.lengths, *part.sources)} == {META}
    assert corpus.train.to(CPU) is corpus.train
    assert moved.task == corpus.task


def test_the_order_of_the_data_does_not_depend_on_the_default_device() -> None:
    lengths = torch.tensor([3, 5, 2, 4, 4, 2, 3])
    before = epoch_batches(lengths, 2, seed=1, epoch=2)
    with META:
        after = epoch_batches(lengths, 2, seed=1, epoch=2)
    assert [rows.tolist() for rows in before] == [rows.tolist() for rows in after]


def test_a_module_without_parameters_is_on_the_cpu() -> None:
    assert device_of(torch.nn.Identity()) == CPU
    assert device_of(torch.nn.Linear(2, 2, device="meta")) == META
