r"""Variational autoencoders of sentences: a bound on log P(s), whatever the latent.

    log P(s) ≥ E_{q(z|s)}[ Σ_t log P(s_t | s_<t, z) ] − KL(q(z|s) ‖ p(z))
    log_prob_t = mean over draws of log P(s_t | s_<t, z) − KL / (n − 1)

The KL is the closed form, shared out evenly over the n − 1 scored tokens: only a
sequence's total is a bound. Training takes fresh draws; evaluation takes `samples`
draws from noise that all sequences share (`functional/noise.py`), so it is repeatable,
and a bound in expectation over that noise.

`next_log_prob` has no sentence to read, so it asks the prior: with `samples` draws z_i ~
p(z) it is the mixture Σ_i P(i | s_<t) P(v | s_<t, z_i), normalised and causal. It tends
to the model's own conditional as `samples` grows; a sampled sentence starts from one of
these draws. Decoding carries the decoder's state from each draw, and the draw's evidence.

Kingma & Welling 2014 (arXiv:1312.6114); Bowman et al. 2016 (arXiv:1511.06349); zoo.md 2.4.
"""

from abc import abstractmethod
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from lmzoo.cells import stack
from lmzoo.config import config
from lmzoo.contract import Carried, Score, scored_mask
from lmzoo.functional.importance import importance_bound
from lmzoo.functional.initial_states import mix_next, start_posterior
from lmzoo.functional.noise import fresh_uniforms, shared_uniforms
from lmzoo.functional.normalise import Norm, Seen, normalise_next, normalise_vectors
from lmzoo.models.latent.decoder import DecoderConfig, SentenceDecoder
from lmzoo.types import Lengths, Tokens


@config
class VAEConfig(DecoderConfig):
    """How many draws of z an evaluation takes."""

    samples: int = Field(8, ge=1)


class Memory(NamedTuple):
    """What is carried from token to token while decoding."""

    state: stack.Stack
    """The decoder's, from each draw."""
    seen: Seen | None
    """The spread of the inputs so far, where they are divided by it."""
    evidence: Float[Tensor, "B S"]
    """Σ_{u<t} log P(s_u | s_<u, z_i)."""
    told: Float[Tensor, "B S V"]
    """Log P(· | s_<t, z_i), from which the next token's is read."""


class VAE(SentenceDecoder):
    """Everything but the latent: a subclass gives q, p, their draws and their KL."""

    score: ClassVar[Score] = Score.LOWER_BOUND
    draws: int = 1
    """Draws of z per sequence and training step."""
    noise_shape: tuple[int, ...]
    """Uniform numbers per draw."""

    @abstractmethod
    def draw(self, h: Float[Tensor, "B E"], u: Float[Tensor, "S ..."]) -> Float[Tensor, "S B E"]:
        """z ~ q(· | h_enc) from uniform noise."""

    @abstractmethod
    def prior_draw(self, u: Float[Tensor, "S ..."]) -> Float[Tensor, "S E"]:
        """z ~ p from uniform noise."""

    @abstractmethod
    def kl(self, h: Float[Tensor, "B E"]) -> Float[Tensor, "B"]:
        """KL(q(· | h_enc) ‖ p), in closed form."""

    @abstractmethod
    def log_ratio(self, z: Float[Tensor, "S B E"], h: Float[Tensor, "B E"]) -> Float[Tensor, "S B"]:
        """Log p(z) − log q(z | h_enc); its mean under q is −KL."""

    def hidden(self, tokens: Tokens, lengths: Lengths) -> Float[Tensor, "B E"]:
        """h_enc of s_{n-1} .. s_1."""
        return self.encode(tokens[:, 1:], lengths - 1)

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        h = self.hidden(tokens, lengths)
        told = self.reconstruction(tokens, lengths, self.draw(h, self._noise(h)), h)
        return told.mean(0) - share(self.kl(h), lengths)

    def reconstruction(
        self, tokens: Tokens, lengths: Lengths, z: Float[Tensor, "S B E"], h: Float[Tensor, "B E"]
    ) -> Float[Tensor, "S B T-1"]:
        """Log P(s_t | s_<t, z); a subclass may add a zero that carries a gradient."""
        return self.decode(tokens, z)

    @property
    def state_size(self) -> int | None:
        # A state and its evidence for each draw: of a single one the evidence says nothing.
        one, norm, draws = self.cell.state_size, self.config.norm, self.config.samples
        if one is None or norm is Norm.TIME_STD:
            return None
        spread = 2 * self.config.width if norm is Norm.TIME_STD_CAUSAL else 0
        return draws * one + (draws if draws > 1 else 0) + spread

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        z = self._prior_draws()[:, None].expand(-1, len(prefix), -1)
        y = self.outputs(prefix, z)
        seen = self.emission.log_prob(y[:, :, :-1], prefix[:, 1:], self.embedding.weight)
        weights = start_posterior(self._even, torch.nn.functional.pad(seen, (0, 1)))[:, :, -1]
        dense = self.emission.dense(y[:, :, -1], self.embedding.weight)
        return torch.logsumexp(weights[..., None] + dense, dim=0)

    def begin(self, batch: int, *given: Tensor) -> Carried:
        if self.config.norm is Norm.TIME_STD:  # every state changes with every later token
            return super().begin(batch, *given)
        start = self.cell.as_start(self._prior_draws()).repeat(1, self.cell.parts)
        state = stack.begin([self.cell], start.expand(batch, -1, -1))
        none = start.new_zeros(batch, len(start))
        # `<start>` itself has no score.
        return Memory(state, None, none, none[..., None].expand(-1, -1, self.task.vocab))

    def advance(self, carried: Carried, token: Tensor) -> tuple[Tensor, Carried]:
        if not isinstance(carried, Memory):
            return super().advance(carried, token)
        norm, table = self.config.norm, self.embedding.weight
        x, spread = normalise_next(self.embedding(token), norm, carried.seen)
        h, state = stack.advance([self.cell], x, carried.state)
        dense = self.emission.dense(normalise_vectors(h, norm), table)
        mixed, evidence = mix_next(self._even, carried.evidence, carried.told, token, dense)
        return mixed, Memory(state, spread, evidence, dense)

    def iw_bound(self, tokens: Tokens, lengths: Lengths, samples: int) -> Float[Tensor, "B"]:
        """The importance-weighted bound on each sequence's log P, from fresh draws."""
        h = self.hidden(tokens, lengths)
        u = fresh_uniforms((samples, len(h), *self.noise_shape), h)
        z = self.draw(h, u)
        told = self.decode(tokens, z) * scored_mask(tokens, lengths)[:, 1:]
        return importance_bound(told.sum(-1) + self.log_ratio(z, h))

    def _prior_draws(self) -> Float[Tensor, "S E"]:
        """The draws of z ~ p that all prefixes share."""
        shape = (self.config.samples, *self.noise_shape)
        return self.prior_draw(shared_uniforms(shape, self.embedding.weight))

    @property
    def _even(self) -> Float[Tensor, "S"]:
        """Log P(i): the draws are alike."""
        return self.embedding.weight.new_zeros(self.config.samples).log_softmax(0)

    def _noise(self, h: Float[Tensor, "B E"]) -> Float[Tensor, "S ..."]:
        if self.training:
            return fresh_uniforms((self.draws, len(h), *self.noise_shape), h)
        return shared_uniforms((self.config.samples, 1, *self.noise_shape), h)


def share(total: Float[Tensor, "*S B"], lengths: Lengths) -> Float[Tensor, "*S B 1"]:
    """Each scored token's even part of a sequence's number."""
    return (total / (lengths - 1).clamp_min(1))[..., None]
