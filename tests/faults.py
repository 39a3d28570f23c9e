"""Subclasses of correct toy models, one for each fault that a law must detect."""

from typing import Any

import torch
from torch import nn

from lmzoo.base.config import config
from lmzoo.contract import Score
from tests.toy_model import Bigram


class SeesTargetToken(Bigram):
    """Violates `law_sums_to_one` and `law_causal`."""

    def logits(self, tokens, lengths):
        return self.table(tokens[:, 1:])


class SeesFutureTokens(Bigram):
    """Violates `law_causal`."""

    def logits(self, tokens, lengths):
        following = tokens.roll(-1, 1)[:, 1:]
        logits = super().logits(tokens, lengths)
        return logits + self.table(following)


class SeesFutureTokensInTraining(SeesFutureTokens):
    """Violates `law_causal`."""

    def logits(self, tokens, lengths):
        if self.training:
            return super().logits(tokens, lengths)
        return Bigram.logits(self, tokens, lengths)


class ScoresWithoutSoftmax(Bigram):
    """Violates `law_sums_to_one`."""

    def score_tokens(self, tokens, lengths):
        logits = self.logits(tokens, lengths)
        return self.chosen(logits, tokens)


class PrefersTheLeastProbable(Bigram):
    """Violates `law_most_probable_is_the_argmax`."""

    def most_probable(self, tokens, lengths, *sources):
        logits = self.logits(tokens, lengths)
        return logits.argmin(-1)


class DecodesWithoutSoftmax(Bigram):
    """Violates `law_next_is_a_distribution` and `law_no_log_probability_exceeds_zero`."""

    def next_log_prob(self, prefix):
        return self.table(prefix[:, -1])


class DecodesFromBatchMean(Bigram):
    """Violates `law_next_is_a_distribution`."""

    def next_log_prob(self, prefix):
        logits = self.table(prefix[:, -1])
        mean = logits.mean(0).log_softmax(-1)
        return mean.expand(len(prefix), -1)


class DecodesFromFirstToken(Bigram):
    """Violates `law_log_prob_equals_next_log_prob`."""

    def next_log_prob(self, prefix):
        logits = self.table(prefix[:, 0])
        return logits.log_softmax(-1)


class AdvanceIgnoresToken(Bigram):
    """Violates `law_advance_equals_next_log_prob`."""

    def begin(self, batch, *source):
        return ()

    def advance(self, state, token):
        another = torch.ones_like(token)
        return self.next_log_prob(another[:, None]), state


class AdvanceChangesItsState(Bigram):
    """Violates `law_advance_equals_next_log_prob`."""

    def begin(self, batch, *source):
        return [0]

    def advance(self, state, token):
        state[0] += 1
        logits = self.table(token) / state[0]
        return logits.log_softmax(-1), state


class StateIsNotATensor(Bigram):
    """Violates `law_advance_equals_next_log_prob`.

    Reads the second last token, and keeps it as a number, which `pick` does not permute.
    """

    def next_log_prob(self, prefix):
        _, length = prefix.shape
        second_last = max(length - 2, 0)
        logits = self.table(prefix[:, second_last])
        return logits.log_softmax(-1)

    def begin(self, batch, *source):
        return None

    def advance(self, state, token):
        read = tuple(token.tolist())
        last = state
        if state is None:
            last = read
        logits = self.table(torch.tensor(last))
        return logits.log_softmax(-1), read


class AddsRandomNoise(Bigram):
    """Violates `law_sums_to_one` and `law_log_prob_equals_next_log_prob`."""

    def logits(self, tokens, lengths):
        logits = super().logits(tokens, lengths)
        return logits + torch.randn_like(logits)


class TransposesScores(Bigram):
    """Violates `law_scores_have_shape`."""

    def log_prob(self, tokens, lengths):
        return super().log_prob(tokens, lengths).T


class ScoresPadding(Bigram):
    """Violates `law_scores_have_shape`."""

    def log_prob(self, tokens, lengths):
        scores = self.score_tokens(tokens, lengths)
        return nn.functional.pad(scores, (1, 0))


class ReadsPadding(Bigram):
    """Violates `law_padding_is_ignored`."""

    def logits(self, tokens, lengths):
        _, width = tokens.shape
        padded = lengths < width
        last = self.table(tokens[:, -1:])
        logits = super().logits(tokens, lengths)
        return logits + last * padded[:, None, None]


class DependsOnPaddedLength(Bigram):
    """Violates `law_padding_is_ignored` and `law_packed_equals_alone`."""

    def logits(self, tokens, lengths):
        logits = super().logits(tokens, lengths)
        _, width = tokens.shape
        return logits * width


class AddsBatchMean(Bigram):
    """Violates `law_rows_are_independent`."""

    def logits(self, tokens, lengths):
        logits = super().logits(tokens, lengths)
        return logits + logits.mean((0, 1))


class AddsBatchMeanInTraining(AddsBatchMean):
    """Violates `law_rows_are_independent` and `law_packed_equals_alone`."""

    def logits(self, tokens, lengths):
        if self.training:
            return super().logits(tokens, lengths)
        return Bigram.logits(self, tokens, lengths)


class DependsOnRowIndex(Bigram):
    """Violates `law_rows_are_independent`."""

    def logits(self, tokens, lengths):
        logits = super().logits(tokens, lengths)
        row = torch.arange(len(tokens))
        return logits * row[:, None, None]


class PosteriorSumsToTwo(Bigram):
    """Violates `law_posterior_is_a_distribution`."""

    latent = "component"

    def posterior(self, tokens, lengths):
        return torch.ones(len(tokens), 2, tokens.shape[1] - 1)


class HasUnusedLayer(Bigram):
    """Violates `law_every_parameter_learns` and `law_unused_parameters_are_declared`."""

    def __init__(self, config, task):
        super().__init__(config, task)
        self.head = nn.Linear(task.vocab, task.vocab)


class HasCancellingBias(HasUnusedLayer):
    """Violates `law_every_parameter_learns`."""

    def logits(self, tokens, lengths):
        # The same number for every token cancels in the softmax.
        constant = self.head.bias.sum()
        logits = super().logits(tokens, lengths)
        return logits + constant + self.head.weight.sum(0)


class FloorsItsScores(Bigram):
    """Violates `law_large_weights_agree`.

    At the weights of the toy no score is as low as the floor.
    """

    def score_tokens(self, tokens, lengths):
        scores = super().score_tokens(tokens, lengths)
        return scores.clamp_min(-20)


class NeedsFloat32(Bigram):
    """Violates `law_runs_in_half_precision`.

    Under autocast the product is bfloat16, for which torch has no ndtri.
    """

    def logits(self, tokens, lengths):
        half = torch.eye(2) @ torch.full((2, 1), 0.5)
        zeros = torch.special.ndtri(half)
        logits = super().logits(tokens, lengths)
        return logits + zeros.sum()


class CarriesThePrefix(Bigram):
    """Violates `law_state_has_the_declared_size`."""

    state_size = 3


class HasReversedGradient(Bigram):
    """Violates `law_overfits_one_sequence`."""

    def logits(self, tokens, lengths):
        logits = super().logits(tokens, lengths)
        return 2 * logits.detach() - logits


class DependsOnCallCount(Bigram):
    """Violates `law_replay_equals_execution`."""

    calls = 0

    def logits(self, tokens, lengths):
        if self.training:
            self.calls += 1
        logits = super().logits(tokens, lengths)
        return logits * (1 + self.calls)


class HasWeightOutsideStateDict(Bigram):
    """Violates `law_checkpoint_is_exact`."""

    def __init__(self, config, task):
        super().__init__(config, task)
        self.noise = torch.randn(task.vocab)

    def logits(self, tokens, lengths):
        return super().logits(tokens, lengths) + self.noise


class HasUndrawnWeight(Bigram):
    """Violates `law_seed_decides_the_weights`."""

    def __init__(self, config, task):
        super().__init__(config, task)
        self.bias = nn.Parameter(torch.zeros(task.vocab))


class DrawsFromClock(Bigram):
    """Violates `law_seed_decides_the_weights`."""

    def __init__(self, config, task):
        super().__init__(config, task)
        self.table.reset_parameters = self.draw

    def draw(self):
        torch.seed()
        nn.init.normal_(self.table.weight)


class IgnoresSeed(Bigram):
    """Violates `law_seed_decides_the_weights`."""

    def __init__(self, config, task):
        super().__init__(config, task)
        self.table.reset_parameters = lambda: nn.init.eye_(self.table.weight)


class AcceptsAnyValue(Bigram):
    """Violates `law_config_rejects_wrong_values`."""

    @config
    class Config:
        size: Any = 3


class ConfigChangesWhenLoaded(Bigram):
    """Violates `law_config_survives_json`."""

    @config
    class Config:
        size: int = 3

        def __post_init__(self):
            object.__setattr__(self, "size", self.size + 1)


class HasConstantOnCpu(Bigram):
    """Violates `law_computes_on_its_device`.

    A tensor that is neither parameter nor buffer stays on the CPU.
    """

    def __init__(self, config, task):
        super().__init__(config, task)
        self.shift = torch.zeros(task.vocab)

    def logits(self, tokens, lengths):
        return super().logits(tokens, lengths) + self.shift


class SourceBigram(Bigram):
    """A bigram model that adds the mean vector of the source to its logits."""

    name = "source_bigram"
    score = Score.CONDITIONAL
    conditional = True

    def __init__(self, config, task):
        super().__init__(config, task)
        self.source_table = nn.Embedding(task.source_vocab, task.vocab)

    def mean(self, source, n):
        real = torch.arange(source.shape[1]) < n[:, None]
        vectors = self.source_table(source) * real[..., None]
        return vectors.sum(1) / n[:, None]

    def score_tokens(self, tokens, lengths, *source):
        mean = self.mean(*source)
        logits = self.logits(tokens, lengths) + mean[:, None]
        return self.chosen(logits.log_softmax(-1), tokens)

    def next_log_prob(self, prefix, *source):
        mean = self.mean(*self.conditioning_inputs(source))
        logits = self.table(prefix[:, -1]) + mean
        return logits.log_softmax(-1)


class SumsToMoreAfterLongSources(SourceBigram):
    """Violates `law_sums_to_one_given_any_source`."""

    def score_tokens(self, tokens, lengths, *source):
        _, n = source
        more = torch.where(n > 1, 0.1, 0.0)
        scores = super().score_tokens(tokens, lengths, *source)
        return scores + more[:, None]


class ReadsFirstSourceTokenOnly(SourceBigram):
    """Violates `law_source_is_read`."""

    def mean(self, source, n):
        return self.source_table(source[:, 0])


class AcceptsMissingSource(SourceBigram):
    """Violates `law_source_is_read`."""

    def conditioning_inputs(self, given):
        if given:
            return given
        # The laws give batches of five rows.
        tokens = torch.zeros(5, 1).long()
        return tokens, torch.ones(5).long()


class ReadsSourcePadding(SourceBigram):
    """Violates `law_source_padding_is_ignored`."""

    def mean(self, source, n):
        vectors = self.source_table(source)
        return vectors.mean(1)


class DependsOnPaddedSourceLength(SourceBigram):
    """Violates `law_source_padding_is_ignored`."""

    def mean(self, source, n):
        return super().mean(source, n) * source.shape[1]


class AveragesSourcesOverTheBatch(SourceBigram):
    """Violates `law_source_belongs_to_its_row`."""

    def mean(self, source, n):
        means = super().mean(source, n)
        return means.mean(0).expand(len(n), -1)


class DecodesFromFirstRowsSource(SourceBigram):
    """Violates `law_source_belongs_to_its_row`."""

    def next_log_prob(self, prefix, *source):
        tokens, n = source
        first = (tokens[:1].expand_as(tokens), n[:1].expand_as(n))
        return super().next_log_prob(prefix, *first)
