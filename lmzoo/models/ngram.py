"""Neural n-gram models: they predict from the embeddings of the last W tokens."""

from abc import abstractmethod
from enum import StrEnum
from itertools import pairwise, permutations
from typing import Annotated, Any, ClassVar

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.search_space import IntRange
from lmzoo.blocks.feature_model import FeatureModel
from lmzoo.blocks.latent import ComponentModel, LatentModel
from lmzoo.blocks.layers import ComponentConfig, EmbeddingConfig, EmbeddingTable, Window
from lmzoo.blocks.log_weights import LogWeights, Weighting
from lmzoo.blocks.unique import embed_unique, unique_rows
from lmzoo.contract import Task, model
from lmzoo.emissions.mixture import Components
from lmzoo.functional.normalise import Norm
from lmzoo.functional.sequence import previous_vectors
from lmzoo.functional.tied_softmax import log_normalisers
from lmzoo.types import Prefix


@model(
    "ngram_log_bilinear",
    aliases=("DLM1",),
    family="ngram",
    document="S0",
    source="Mnih & Hinton 2007; S0",
)
class NgramLogBilinear(FeatureModel):
    """Log-bilinear n-gram: one linear map of the last W token vectors, tied softmax.

        y_t = Σ_{j=1..W} W_j c_j + b        c_j = e(s_{t-j}), the vector 1 before `<start>`
        P(s_t | s_<t) = softmax( Emb y_t )

    c_j, y_t and b are (E), W_j is (E, E), Emb is the embedding table (V, E). W = 1 is the
    log-bilinear bigram. The S0 code leaves out s_{t-1}; this model follows the text of S0 and reads
    it.
    """

    @config
    class Config(EmbeddingConfig):
        """Embedding and window."""

        window: Window = 5
        """Number W of context tokens; the model is a (W+1)-gram."""

    def __init__(self, config: Config, task: Task):
        super().__init__(config, task, config.embedding_std)
        columns = config.window * config.width
        self.transition = nn.Linear(columns, config.width)
        self.context_length = config.window

    def features(self, tokens: Tensor, *sources: Tensor) -> Tensor:
        x = self.embedding(tokens)
        context = previous_vectors(x, self.config.window)
        return self.transition(context.flatten(2))


Activation = StrEnum("Activation", "TANH RELU GELU")
Units = Annotated[int, IntRange(16, 512, log=True), Field(ge=1)]
HiddenLayers = Annotated[int, IntRange(1, 3), Field(ge=0)]
"""Activation function of the hidden layers."""


@model(
    "markov_mlp",
    family="ngram",
    document="S4",
    source="Bengio et al. 2003; S4",
)
class MarkovMLP(FeatureModel):
    """Neural n-gram: a feed-forward network of the last τ token vectors.

        x_t = [ c_1; ..; c_τ ]             c_j = e(s_{t-j}), the vector 1 before `<start>`
        y_t = MLP( x_t )                   `depth` hidden layers of `hidden` units; 0: a linear map
        P(s_t | s_<t) = softmax( O y_t )   O = Emb if tied, else a second table

    x_t is (τ·E), y_t is (E), Emb and O are (V, E). With depth=0 and tied=True it is the
    log-bilinear n-gram.
    """

    @config
    class Config(EmbeddingConfig):
        """Embedding, window and network."""

        window: Window = 4
        """Number τ of context tokens."""
        hidden: Units = 64
        """Units per hidden layer."""
        depth: HiddenLayers = 1
        """Number of hidden layers."""
        activation: Activation = Activation.TANH
        tied: bool = True
        """Whether the output table is the embedding table."""

    def __init__(self, config: Config, task: Task):
        width = config.width
        std = config.embedding_std
        super().__init__(config, task, std)
        hidden = [config.hidden] * config.depth
        sizes = [config.window * width] + hidden + [width]
        self.layers = nn.ModuleList()
        # A layer for each pair of sizes; without hidden ones a single linear map.
        for inputs, outputs in pairwise(sizes):
            self.layers.append(nn.Linear(inputs, outputs))
        if not config.tied:
            self.output = EmbeddingTable(task.vocab, width, std)
        self.context_length = config.window

    def features(self, tokens: Tensor, *sources: Tensor) -> Tensor:
        x = self.embedding(tokens)
        context = previous_vectors(x, self.config.window)
        y = context.flatten(2)
        activate = getattr(torch.nn.functional, self.config.activation)
        # No activation after the last: logits have both signs.
        for layer in self.layers[:-1]:
            y = activate(layer(y))
        return self.layers[-1](y)


Transitions = Annotated[int, IntRange(1, 16, log=True), Field(ge=1)]
"""Number of log-bilinear models in a mixture."""


class VectorMixture(LatentModel):
    """Base class of mixtures of log-bilinear n-grams.

        P(s_t | s_<t) = Σ_k P(k) softmax( Emb y_k,t )[s_t]

    A subclass predicts the K vectors y_k,t (E) from the window of the last W tokens, and sets the
    weights P(k). The softmax normalisers are computed once per distinct window of a batch.
    """

    weights: LogWeights

    def __init__(self, config: Any, task: Task):
        super().__init__(config, task)
        self.context_length = config.window

    @abstractmethod
    def predict_vectors(self, tokens: Prefix) -> Float[Tensor, "K B t E"]:
        """Return the K vectors y of the token after each position."""

    def joint(self, tokens: Tensor) -> Tensor:
        table = self.table
        sources = tokens[:, :-1]
        y = self.predict_vectors(sources)
        # Equal windows have equal normalisers, the dearest part: each is computed once.
        windows = previous_vectors(sources[..., None], self.config.window, pad=-1.0)
        rows = windows.flatten(0, 1)
        first, index = unique_rows(rows.squeeze(2))
        distinct = y.flatten(1, 2)[:, first]
        log_z = log_normalisers(distinct, table)[:, index]
        targets = table[tokens[:, 1:]]
        logits = (y * targets).sum(-1)
        scores = logits - log_z.unflatten(1, y.shape[1:3])
        by_sequence = scores.transpose(0, 1)
        # The mixture weights are the same at every position.
        return self.weights()[:, None] + by_sequence

    def next_joint(self, prefix: Tensor) -> Tensor:
        every = self.predict_vectors(prefix)
        y = every[:, :, -1].transpose(0, 1)
        logits = y @ self.table.T
        scores = logits.log_softmax(-1)
        return self.weights()[:, None] + scores

    def prior(self) -> Tensor:
        return self.weights()


Permuted = Annotated[int, IntRange(1, 4), Field(ge=1, le=6)]


@model(
    "permutation_log_bilinear",
    aliases=("DLM3",),
    family="ngram",
    document="S0",
    source="S0",
)
class PermutationLogBilinear(VectorMixture):
    """Log-bilinear n-gram, a mixture over all W! permutations of its window.

        P(s_t | s_<t) = Σ_{π ∈ S_W} P(π) softmax( Emb y_π )[s_t]
        y_π           = Σ_{j=1..W} W_j c_{π(j)} + b

    π is a permutation of 1..W; P(π) is learned, or uniform as in the S0 code. c_j = e(s_{t-j}), y_π
    and b are (E), W_j is (E, E), Emb is (V, E).

    Every token takes W! softmaxes over the vocabulary: 120 at W = 5, the value of S0, and 6 at the
    default W = 3, where a training step takes 50 to 65 times as long as one of `aggregate_markov`.
    """

    latent = "permutation of the window"

    @config
    class Config(EmbeddingConfig):
        """Embedding, window and P(π)."""

        window: Permuted = 3
        """Number W of context tokens."""
        weights: Weighting = Weighting.LEARNED

    orders: Tensor
    """All permutations of 0..W-1, one per row, (W!, W)."""

    def __init__(self, config: Config, task: Task):
        super().__init__(config, task)
        width = config.width
        window = config.window
        every = list(permutations(range(window)))
        orders = torch.tensor(every)
        # They follow from the window: a checkpoint does not need them.
        self.register_buffer("orders", orders, persistent=False)
        self.transition = nn.Linear(window * width, width)
        self.weights = LogWeights(len(orders), config.weights)

    def latent_value_names(self) -> tuple[str, ...]:
        """Return the lag at each position of the window, such as "2 1 3", for each permutation."""
        return tuple(" ".join(str(lag + 1) for lag in order) for order in self.orders.tolist())

    def predict_vectors(self, tokens: Tensor) -> Tensor:
        window = self.config.window
        x = self.embedding(tokens)
        context = previous_vectors(x, window)
        maps = self.transition.weight.unflatten(1, (window, -1))
        # W² products W_j c_i serve all W! permutations: each permutation sums W of them.
        terms = torch.einsum("ejd,btid->jibte", maps, context)
        y = self.transition.bias
        # Summed one by one: W tensors of all permutations at once would take W times the memory.
        for j, order in enumerate(self.orders.unbind(1)):
            y = y + terms[j, order]
        return y


@model(
    "log_bilinear_mixture",
    aliases=("DLM4",),
    family="ngram",
    document="S0",
    source="S0",
)
class LogBilinearMixture(VectorMixture):
    """Mixture of K log-bilinear n-grams, one tied softmax each.

        (y_1 .. y_K)  = Lin(W·E → K·E)( c_1 .. c_W )
        P(s_t | s_<t) = Σ_k π_k softmax( Emb y_k )[s_t]

    c_j = e(s_{t-j}) and y_k are (E), π is (K), Emb is (V, E). Lin is one affine map. π is uniform,
    as in the S0 code, or learned (weights=learned). S0 reports that five components are no better
    than one.
    """

    latent = "component"

    @config
    class Config(EmbeddingConfig):
        """Embedding, window, number of components and their weights."""

        window: Window = 5
        """Number W of context tokens."""
        components: Transitions = 3
        """Number K of components. Each computes a softmax over the vocabulary per token."""
        weights: Weighting = Weighting.UNIFORM

    def __init__(self, config: Config, task: Task):
        super().__init__(config, task)
        width = config.width
        count = config.components
        columns = config.window * width
        self.transition = nn.Linear(columns, count * width)
        self.weights = LogWeights(count, config.weights)

    def predict_vectors(self, tokens: Tensor) -> Tensor:
        c = self.config
        x = self.embedding(tokens)
        context = previous_vectors(x, c.window)
        y = self.transition(context.flatten(2))
        by_component = y.unflatten(2, (c.components, -1))
        return by_component.movedim(2, 0)


class BigramMixture(LatentModel):
    """Base class: a unigram and `config.components` log-bilinear bigrams, mixed by λ."""

    context_length = 1

    def __init__(self, config: Any, task: Task):
        super().__init__(config, task)
        width = config.width
        count = config.components
        self.transition = nn.Linear(width, count * width)
        # One more than bigrams: the unigram.
        self.weights = LogWeights(count + 1, config.weights)

    def joint(self, tokens: Tensor) -> Tensor:
        targets = tokens[:, 1:]
        table = self.table
        # A bigram depends on the last token only: each distinct token is mapped once.
        x, at = embed_unique(table, tokens[:, :-1])
        y = self._transition_vectors(x)
        log_z = log_normalisers(y, table)
        y = at(y.flatten(1)).unflatten(2, y.shape[1:])
        read = table[targets][:, :, None]
        # The target's logit only: all of the vocabulary are in the normaliser.
        logits = (y * read).sum(-1)
        bigrams = logits - at(log_z)
        unigram = self.unigram()[targets]
        scores = torch.cat([unigram[..., None], bigrams], -1)
        joint = self.weights() + scores
        return joint.transpose(1, 2)

    def next_joint(self, prefix: Tensor) -> Tensor:
        x = self.embedding(prefix[:, -1])
        bigrams = self._dense(x)
        unigram = self.unigram().expand(len(x), 1, -1)
        # The unigram is the first component, as in `weights`.
        scores = torch.cat([unigram, bigrams], 1)
        return self.weights()[:, None] + scores

    def prior(self) -> Tensor:
        return self.weights()

    def unigram(self) -> Float[Tensor, "V"]:
        """Return log Q."""
        # The first bigram after the vector 1, which stands for "no token".
        ones = self.table.new_ones(1, self.config.width)
        scores = self._dense(ones)
        return scores[0, 0]

    def _dense(self, x: Float[Tensor, "N E"]) -> Float[Tensor, "N K V"]:
        y = self._transition_vectors(x)
        logits = y @ self.table.T
        return logits.log_softmax(-1)

    def _transition_vectors(self, x: Float[Tensor, "N E"]) -> Float[Tensor, "N K E"]:
        y = self.transition(x)
        return y.unflatten(1, (self.config.components, -1))


@model(
    "multi_transition_bigram",
    aliases=("DLM8",),
    family="ngram",
    document="S0",
    source="S0",
)
class MultiTransitionBigram(BigramMixture):
    """Mixture of a unigram and K log-bilinear bigrams.

        P(s_t | s_<t) = λ_0 Q(s_t) + Σ_{k=1..K} λ_k softmax( Emb (M_k c_1 + b_k) )[s_t]
        Q = softmax( Emb (M_1·1 + b_1) )

    c_1 = e(s_{t-1}) and b_k are (E), M_k is (E, E), Emb is (V, E), the weights λ are (K+1). K = 1
    is the interpolated bigram.
    """

    latent = "unigram or transition"

    @config
    class Config(EmbeddingConfig):
        """Embedding, number of bigrams and mixing weights."""

        components: Transitions = 4
        """Number K of bigrams. Each computes a softmax over the vocabulary per distinct token."""
        weights: Weighting = Weighting.LEARNED


Unigram = StrEnum("Unigram", "TIED_TO_PAD FREE")
"""How the unigram is parameterised."""


@model(
    "interpolated_bigram",
    aliases=("DLM7",),
    family="ngram",
    document="S0",
    source="Jelinek & Mercer 1980; S0",
)
class InterpolatedBigram(BigramMixture):
    """Mixture of a unigram and a log-bilinear bigram.

        P(s_t | s_<t) = λ_0 Q(s_t) + λ_1 softmax( Emb (M c_1 + b) )[s_t]
        Q = softmax( Emb (M·1 + b) )        unigram=tied_to_pad: the bigram map of the vector 1
        Q = softmax( q )                    unigram=free: one logit per token

    c_1 = e(s_{t-1}) and b are (E), M is (E, E), Emb is (V, E), q is (V). The weights λ (2) are
    learned, as in the S0 code, or ½ each (weights=uniform), as in the text of S0.
    """

    latent = "unigram or bigram"

    @config
    class Config(EmbeddingConfig):
        """Embedding, mixing weights and kind of unigram."""

        components: ClassVar[int] = 1
        weights: Weighting = Weighting.LEARNED
        unigram: Unigram = Unigram.TIED_TO_PAD

    free: nn.Parameter | None

    def __init__(self, config: Config, task: Task):
        super().__init__(config, task)
        free = None
        if config.unigram is Unigram.FREE:
            free = nn.Parameter(torch.empty(task.vocab))
        self.register_parameter("free", free)
        self.reset_parameters()

    def reset_parameters(self):
        """Set the logits of a free unigram to 0 (the uniform distribution)."""
        if self.free is not None:
            # Zeros: the uniform distribution.
            nn.init.zeros_(self.free)

    def unigram(self) -> Tensor:
        if self.free is None:
            return super().unigram()
        return self.free.log_softmax(0)


@model(
    "unigram_mixture",
    aliases=("DLM9",),
    family="ngram",
    document="S0",
    source="S0",
)
class UnigramMixture(ComponentModel):
    """Mixture of K unigrams, a control that ignores the context.

        P(s_t) = Σ_k π_k softmax( Emb v_k )[s_t]

    v_k is (E), π is (K), Emb is (V, E). For every K the mixture is one categorical distribution, so
    it fits the training data at most as well as the empirical unigram. The S0 code sets every v_k
    to the vector 1, which makes all components equal; here they are free parameters.
    """

    context_length = 0

    @config
    class Config(ComponentConfig):
        """Embedding, number of components and mixing weights."""

        weights: Weighting = Weighting.LEARNED

    def __init__(self, config: Config, task: Task):
        super().__init__(config, task)
        count = config.components
        self.weights = LogWeights(count, config.weights)
        self.words = Components(count, config.width, Norm.NONE, scaled=False)

    def log_weights(self, tokens: Tensor) -> Tensor:
        shape = tokens.shape + (-1,)
        return self.weights().expand(shape)

    def prior(self) -> Tensor:
        return self.weights()
