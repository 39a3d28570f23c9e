"""Hidden Markov models, of the whole sequence and of two steps."""

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.blocks.latent import ComponentModel
from lmzoo.blocks.layers import ComponentConfig
from lmzoo.blocks.log_weights import LogWeights
from lmzoo.contract import DecodingState, Task, model
from lmzoo.emissions.mixture import Components
from lmzoo.functional.logspace import log_mixture
from lmzoo.functional.normalise import Norm


class HiddenChain(ComponentModel):
    """The weights π, Tr and B of a hidden Markov model."""

    def __init__(self, config: ComponentConfig, task: Task):
        super().__init__(config, task)
        width = config.width
        count = config.components
        self.start = LogWeights(count)
        self.set_drawn(1, transition=(count, count))  # like the start logits
        self.words = Components(count, width, Norm.NONE, scaled=False)

    def log_transition(self) -> Float[Tensor, "K K"]:
        """Return log Tr."""
        return self.transition.log_softmax(-1)


@model(
    "hmm",
    family="latent-markov",
    document="S0",
    source="Rabiner 1989; S0",
)
class HMM(HiddenChain):
    """Hidden Markov model over the whole sequence, by the forward algorithm.

        P(z_1) = π,   P(z_{t+1} = j | z_t = i) = Tr[i, j],   P(s_t | z_t = j) = B[j, s_t]
        α_1 = π,      α_{t+1}(j) = Σ_i P(z_t = i | s_<=t) Tr[i, j]        α_t(j) = P(z_t = j | s_<t)
                      P(z_t = i | s_<=t) = α_t(i) B[i, s_t] / P(s_t | s_<t)
        P(s_t | s_<t) = Σ_j α_t(j) B[j, s_t]

    π (K) and the rows of Tr (K, K) are softmaxes of logits. B[z, v] = softmax_v( Emb k_z ); k_z is
    (E), Emb is (V, E). `<start>` is not emitted. The product of the last line over t is the sum
    over all paths z_1..z_{T-1}. The posterior of the zoo is the filter P(z_t | s_<=t).
    `local_hmm` is this chain cut to two steps, and equals it at t <= 2.
    """

    @property
    def state_size(self) -> int | None:
        return self.config.components

    def log_weights(self, tokens: Tensor) -> Tensor:
        """Return log α_{i+1} after each of the tokens s_0..s_i."""
        read = tokens[:, 1:]
        emitted = self.words.token_log_probs(read, self.table)
        step = self.log_transition()
        alpha = self.start().expand(len(tokens), -1)
        every = [alpha]
        # α_t predicts the state of token t from the tokens before it, so that scores stay causal.
        for scores in emitted.unbind(1):
            alpha = self._predict(alpha + scores, step)
            every.append(alpha)
        return torch.stack(every, 1)

    def begin(self, batch: int, *sources: Tensor) -> DecodingState:
        # π is no state: `advance` takes it at `<start>`.
        return None

    def advance(self, state: DecodingState, token: Tensor) -> tuple[Tensor, DecodingState]:
        """Read one token; the state is log α of it, and None before `<start>`."""
        scores = self.words.log_prob_table(self.table)
        # `<start>` is not emitted, so it tells nothing of the state.
        if state is None:
            alpha = self.start().expand(len(token), -1)
        else:
            joint = state + scores.T[token]
            alpha = self._predict(joint, self.log_transition())
        mixed = alpha[..., None] + scores
        return mixed.logsumexp(1), alpha

    def prior(self) -> Tensor:
        return self.start()

    def _predict(
        self, joint: Float[Tensor, "B K"], step: Float[Tensor, "K K"]
    ) -> Float[Tensor, "B K"]:
        """Return log α of the next token from log P(z, s_t | s_<t)."""
        # Normalised at every step: the unnormalised sum would underflow on long sequences.
        current = joint.log_softmax(-1)
        paths = current[..., None] + step
        return paths.logsumexp(1)


@model(
    "local_hmm",
    aliases=("DLM15",),
    family="latent-markov",
    document="S0",
    source="Rabiner 1989; S0",
)
class LocalHMM(HiddenChain):
    """Two-step hidden Markov model: filter the last token, predict the next.

        P(z | s)            = π_z B[z, s] / Σ_y π_y B[y, s]           filter
        P(z' | s)           = Σ_z P(z | s) Tr[z, z']                  predict
        P(s_t | s_<t)       = Σ_z' P(z' | s_{t-1}) B[z', s_t]

    π (K) and the rows of Tr (K, K) are softmaxes of logits. B[z, v] = softmax_v( Emb k_z ) is
    shared by both time steps; k_z is (E), Emb is (V, E). The model is an aggregate Markov model
    whose class distribution P(z' | s) is computed from the emissions instead of by a free gate.
    """

    context_length = 1

    def log_weights(self, tokens: Tensor) -> Tensor:
        emitted = self.words.token_log_probs(tokens, self.table)
        # The state of the last token is filtered from it alone, with the prior π.
        joint = self.start() + emitted
        current = joint.softmax(-1)
        return log_mixture(current, self.log_transition())

    def prior(self) -> Tensor:
        # The first prediction filters no token: one transition from π.
        start = self.start().exp()[None]
        first = log_mixture(start, self.log_transition())
        return first[0]
