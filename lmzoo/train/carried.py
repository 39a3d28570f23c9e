"""Training and evaluation with a state that is carried from block to block (`carry_state`).

Backpropagation is truncated at the beginning of a block, whose length is `corpus.block` + 1, or
random with `random_blocks` (`lmzoo/data/blocks.py`). The state of every stream is the
initial state at the beginning of an epoch, so that a checkpoint between two epochs needs no state.
Evaluation is one pass over a whole split from the initial state: each token is scored with all
tokens before it as context. The loss of a window is that of the tokens that it scores, so that it
can be compared with an evaluation without carried state.

Williams & Peng 1990; Mikolov et al. 2010; Merity et al. 2018 (arXiv:1708.02182).
"""

from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor

from lmzoo.base.errors import UserError
from lmzoo.blocks.carried_state import CarriesState, carries_state
from lmzoo.contract import LanguageModel
from lmzoo.data.blocks import (
    Blocks,
    block_sizes,
    cut_in_order,
    num_blocks,
    scored_text,
    stream_batches,
)
from lmzoo.data.corpus import Corpus, Sequences
from lmzoo.functional.token_scores import mask_scores
from lmzoo.kernels.device import device_of, device_scope
from lmzoo.train.evaluate import Losses, compute_losses
from lmzoo.train.recipe import Recipe

CHUNK = 1024
"""Tokens that an evaluation scores at a time; the result does not depend on it."""


def check_carry(model: LanguageModel, recipe: Recipe, corpus: Corpus) -> None:
    """Raise a UserError if the recipe carries a state that the model or the corpus does not have.

    A model that is estimated in closed form has no steps, so that the recipe does not matter.
    """
    if not recipe.carry_state or model.closed_form:
        return
    advice = "drop it with --set recipe.carry_state=false"
    if not carries_state(model):
        raise UserError(
            f"recipe.carry_state=true: {model.name} has no state of constant size to carry; "
            f"choose a recurrent row, or {advice}"
        )
    data = corpus.train
    if not isinstance(data, Blocks):
        raise UserError(
            f"recipe.carry_state=true: {corpus.name} is not one contiguous text; "
            f"use stream:PATH or shakespeare_char, or {advice}"
        )
    if data.count:
        raise UserError(
            f"recipe.carry_state=true: corpus.blocks={data.count} draws blocks at random places, "
            "which do not follow each other; set corpus.blocks=0"
        )
    if not num_blocks(data, recipe.batch):
        raise UserError(
            f"recipe.batch={recipe.batch} parallel streams of {data.size} tokens are longer "
            f"than the training split of {corpus.name}; lower recipe.batch or corpus.block"
        )


def carried_batches(
    data: Sequences, recipe: Recipe, device: torch.device, *, seed: int, epoch: int
) -> tuple[list[float], int, Iterator[Sequences]]:
    """Return the batches of an epoch, after their lengths / (L + 1) and all scored tokens."""
    moved, streams = data.to(device), recipe.batch
    assert isinstance(moved, Blocks)
    sizes = block_sizes(moved, streams, random=recipe.random_blocks, seed=seed, epoch=epoch)
    batches = stream_batches(moved, streams, sizes, seed=seed, epoch=epoch)
    return [size / moved.size for size in sizes], streams * sum(sizes), batches


class CarriedObjective:
    """Scores consecutive batches of parallel streams."""

    def __init__(self, model: LanguageModel) -> None:
        self._model, self._state = cast("CarriesState", model), cast("Any", None)

    def begin_epoch(self) -> None:
        """Begin new streams: the next block starts from the initial state."""
        self._state = None

    def __call__(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Return log P of each token (B, T) in nats, 0 for the first; keep the state after it."""
        scores, self._state = self._model.score_block(tokens, self._state)
        return mask_scores(scores, lengths, clamp=True)


@torch.no_grad()
def evaluate_carried(model: LanguageModel, part: Sequences) -> Losses:
    """Return the losses on the text of evaluation windows, in one pass with carried state."""
    was_training = model.training
    model.eval()
    state, scores = None, []
    text = scored_text(part).to(device_of(model))[None]
    with device_scope(model):
        chunks = [CHUNK] * -(-text.shape[1] // CHUNK)
        for tokens in cut_in_order(text, chunks):
            values, state = cast("CarriesState", model).score_block(tokens, state)
            scores.append(values[0].double().clamp_max(0).cpu())
    model.train(was_training)
    return text_losses(part, torch.cat(scores))


def text_losses(part: Sequences, scores: Tensor) -> Losses:
    """Return the losses of evaluation windows from log P of each scored token of their text."""
    counts = part.counts.cpu()
    window = torch.arange(len(counts)).repeat_interleave(counts)
    nll = torch.zeros(len(counts), dtype=torch.float64).index_add_(0, window, -scores)
    return compute_losses(nll, counts)
