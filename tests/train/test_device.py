"""A training lives where its weights are; what it draws does not depend on where that is."""

import torch

from lmzoo.data.batches import epoch_batches
from lmzoo.data.open import open_corpus
from lmzoo.device import CPU, device_of

META = torch.device("meta")


def test_a_corpus_goes_to_a_device_and_stays_itself_where_it_is() -> None:
    corpus = open_corpus({"name": "copy", "train": 3, "valid": 2, "test": 2})
    moved = corpus.to(META)
    for part in (moved.train, moved.valid, moved.test):
        assert {column.device for column in (part.tokens, part.lengths, *part.given)} == {META}
    assert corpus.train.to(CPU) is corpus.train
    assert moved.task == corpus.task


def test_the_order_of_the_data_is_drawn_on_the_cpu_whatever_the_device_in_force() -> None:
    lengths = torch.tensor([3, 5, 2, 4, 4, 2, 3])
    before = epoch_batches(lengths, 2, seed=1, epoch=2)
    with META:
        after = epoch_batches(lengths, 2, seed=1, epoch=2)
    assert [rows.tolist() for rows in before] == [rows.tolist() for rows in after]


def test_a_module_without_weights_is_on_the_cpu() -> None:
    assert device_of(torch.nn.Identity()) == CPU
    assert device_of(torch.nn.Linear(2, 2, device="meta")) == META
