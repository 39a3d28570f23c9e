"""Cells with the delta rule: DeltaNet, gated DeltaNet and its kin.

N is RMSNorm per head, u / √(mean u² + 10⁻⁵), with the same scales for all heads, and |u|² of unit
has 10⁻⁶ added, both as in the code of flash-linear-attention. Differences from it
(`layers/delta_net.py`, `gated_deltanet.py`, `gated_deltaproduct.py` and `kda.py`, bc3b101):

    there                              here                        why
    4, 6 or 16 heads                   2 heads                     widths of 32 to 256
    models redraw at N(0, 0.02²)       U(±1/√fan-in) of the layer  `recipe.init=normal_0.02` does
    gated_deltanet, gated_deltaproduct  heads · K = E, V = 2 K:    one width; `expand_v=1` has
    have heads · K = ¾ E, V = 2 K:     8 E² weights               5 E²
    6 E² weights
"""

from enum import StrEnum
from functools import partial
from typing import Annotated, Any, ClassVar

import torch
from jaxtyping import Float
from pydantic import Field, StrictBool, model_validator
from torch import Tensor
from torch.nn.functional import linear, softplus

from lmzoo.base.config import config
from lmzoo.base.search_space import Choice
from lmzoo.cells.base import CELLS, Expand, Heads, Parts
from lmzoo.cells.cuts import Cuts, cuts_of, removed
from lmzoo.cells.draws import WINDOW, by_columns, by_fan_in, delta_bias, log_rates, ones
from lmzoo.cells.matrix import MatrixCell, WeightTable, head_size
from lmzoo.functional.matrix_state import Update, stacked
from lmzoo.functional.normalise import unit

DeltaCut = StrEnum("DeltaCut", "BETA DELTA CONVOLUTION UNIT NORM")
BetaMax = Annotated[float, Choice((1.0, 2.0))]


@config
class DeltaConfig:
    """Fields of the cells with the delta rule."""

    heads: Heads = 2
    beta_max: BetaMax = Field(1.0, gt=0, le=2)
    """The largest β; above 1, steps have negative eigenvalues."""

    @model_validator(mode="after")
    def _no_range_without_beta(self) -> Any:
        if "beta" in self.cuts:  # type: ignore[attr-defined]
            # The instance is frozen.
            object.__setattr__(self, "beta_max", 1.0)  # β is 1: equal functions, equal configs
        return self


class DeltaRule(MatrixCell):
    """Base class of DeltaNet and gated DeltaNet: linear attention with the delta rule."""

    convolved = ("q", "k", "v")
    rate_low: ClassVar[float] = 1.0
    """The least initial rate of a decay that reads the token."""
    owns: ClassVar[tuple[str, ...]] = ()
    """The weights of a subclass, besides those of DeltaNet."""
    removes: ClassVar[dict[Any, set[str]]] = {
        "beta": {"beta"},
        "convolution": {"conv"},
        "norm": {"norm"},
    }
    """The weights that go with a cut, or with all cuts of a tuple."""

    def __init__(self, config: Any, width: int, length: int):
        super().__init__(config, width, length)
        size = head_size(width, config.heads)
        expand_v = getattr(config, "expand_v", 1)
        self.shape_state(config.heads, size, expand_v * size)
        owns = {"q", "k", "v", "beta", "conv", "out", "norm"}
        owns.update(self.owns)
        # One table for all cells: shared weights then have one order of draws.
        weights = {name: weight for name, weight in self._table().items() if name in owns}
        cut = removed(self.removes, config.cuts)
        self.set_weights(weights, cut)

    def _table(self) -> WeightTable:
        """Return the weights of all cells of the family; options are drawn last."""
        c = self.config
        n = self.heads
        rank = self.values
        steps = self.substeps
        keys = n * self.keys
        values = n * self.values
        heads = (n,)
        low_rank = "up_alpha" in self.owns
        decays = n
        alpha = n
        gate = values
        if low_rank:
            # The projections are those to the rank; the maps from it are weights of their own.
            alpha = rank
            gate = rank
            if "vector" not in c.cuts:
                decays = keys
        rates = partial(log_rates, low=self.rate_low)
        convolved = keys + steps * (keys + values)
        return {
            "q": keys,
            "k": steps * keys,
            "v": steps * values,
            "beta": steps * n,
            "alpha": alpha,
            "gate": gate,
            "conv": ((convolved, WINDOW), by_columns),
            "out": ((self.width, values), by_columns),
            "norm": (self.values, ones),
            "log_rate": (heads, rates),
            "up_alpha": ((decays, rank), by_columns),
            "bias_alpha": (decays, delta_bias),
            "up_gate": ((values, rank), by_columns),
            "bias_gate": (values, by_fan_in(rank)),
            "bias_b": (heads, ones),
            "skip": (heads, ones),
        }

    def directions(self, x: Float[Tensor, "*N M"]) -> Float[Tensor, "*N n K"]:
        """Return the vectors of all heads, of length 1 unless this is cut."""
        x = self.split_heads(x)
        if "unit" in self.config.cuts:
            return x
        return unit(x)

    def log_alpha(self, z: Parts, like: Tensor) -> Float[Tensor, "*N n 1"]:
        """Return the logarithm of the decay α; DeltaNet has none, α = 1."""
        one = like[..., :1]
        # log 1: without a decay nothing is forgotten.
        return torch.zeros_like(one)

    def update(self, z: Parts) -> Update:
        q = self.directions(z["q"])
        k = self.directions(z["k"])
        v = self.split_heads(z["v"])
        # On the query only, once: k is a direction.
        q = q / self.keys**0.5
        beta = 1.0
        if "beta" in z:
            sigmoid = z["beta"].sigmoid()[..., None]
            beta = self.config.beta_max * sigmoid
        log_alpha = self.log_alpha(z, q)
        written = beta * k
        if "delta" in self.config.cuts:
            return Update(q, written, v, log_alpha)
        # The delta rule reads the state before its decay: α (I − β k kᵀ) is α − (α β k) kᵀ.
        erase = log_alpha.exp() * written
        return Update(q, written, v, log_alpha, erase, k)


@CELLS("deltanet")
class DeltaNet(DeltaRule):
    """Linear attention with the delta rule.

        q_t = unit(SiLU(conv(W_q x_t))) / √K    k_t = unit(SiLU(conv(W_k x_t)))    unit(u) = u / |u|
        v_t = SiLU(conv(W_v x_t))               β_t = m σ(W_β x_t)
        S_t = (I − β_t k_t k_tᵀ) S_{t-1} + β_t k_t v_tᵀ
        y_t = W_y N(S_tᵀ q_t)

    S is (K, V) for each head; β is one number per head; conv is causal, depthwise and 4 tokens
    long. The step is one step of gradient descent on ½‖Sᵀk − v‖² with the rate β. m is `beta_max`,
    1 as published first; with m = 2 the eigenvalue 1 − β of the step may be negative, down to a
    reflection, which parity and groups of permutations need (Grazzi et al. 2025). Cuts:

        0  beta          β_t → 1
        1  delta         (I − β_t k_t k_tᵀ) S_{t-1} → S_{t-1}: linear attention
        2  convolution   conv(u) → u: q, k, v read one token
        3  unit          unit(u) → u
        4  norm          N(u) → u

    Schlag et al. 2021 (arXiv:2102.11174); Yang et al. 2024 (arXiv:2406.06484); Grazzi et al. 2025
    (arXiv:2411.12537).
    """

    @config
    class Config(DeltaConfig):
        """Number of heads, range of β, and the cuts, by name or number."""

        cuts: Cuts[DeltaCut] = frozenset()


GatedDeltaCut = StrEnum("GatedDeltaCut", "BETA DELTA CONVOLUTION UNIT NORM ALPHA GATE")


@config
class GatedConfig(DeltaConfig):
    """Fields of the cells with the gated delta rule."""

    expand_v: Expand = 2
    """V / K."""


class GatedDelta(DeltaRule):
    """What the cells with a decay per head and an output gate share."""

    rate_low = 0.0
    owns = ("alpha", "gate", "log_rate", "bias_alpha")
    removes = DeltaRule.removes | {
        "gate": {"gate"},
        "alpha": {"alpha", "log_rate", "bias_alpha"},
    }

    def log_alpha(self, z: Parts, like: Tensor) -> Tensor:
        if "alpha" not in z:
            return super().log_alpha(z, like)
        logit = z["alpha"] + self.w.bias_alpha
        rate = self.w.log_rate.exp()
        decay = rate * softplus(logit)
        return -decay[..., None]


@CELLS("gated_deltanet")
class GatedDeltaNet(GatedDelta):
    """DeltaNet with a decay and an output gate.

        q_t = unit(SiLU(conv(W_q x_t))) / √K    k_t = unit(SiLU(conv(W_k x_t)))    unit(u) = u / |u|
        v_t = SiLU(conv(W_v x_t))               β_t = m σ(W_β x_t)
        α_t = exp( −exp(A) softplus(W_α x_t + b_α) )
        S_t = α_t (I − β_t k_t k_tᵀ) S_{t-1} + β_t k_t v_tᵀ
        y_t = W_y ( N(S_tᵀ q_t) ⊙ swish(W_g x_t) )

    S is (K, V) for each head, V = `expand_v` · K; α and β are one number per head; m is `beta_max`,
    as in `deltanet`. A starts at log U(0, 16), softplus(b_α) log-uniform in [0.001, 0.1]. Cuts 0 to
    4 are those of `deltanet`:

        0  beta          β_t → 1                                   3  unit    unit(u) → u
        1  delta         (I − β_t k_t k_tᵀ) S_{t-1} → S_{t-1}      4  norm    N(u) → u
        2  convolution   conv(u) → u: q, k, v read one token       5  alpha   α_t → 1
        6  gate          swish(W_g x_t) → 1

    Without alpha (5) and gate (6) it is `deltanet`.

    Yang et al. 2025 (arXiv:2412.06464).
    """

    @config
    class Config(GatedConfig):
        """Number of heads, sizes, range of β, and the cuts, by name or number."""

        cuts: Cuts[GatedDeltaCut] = frozenset()


@CELLS("deltaproduct")
class DeltaProduct(GatedDelta):
    """Gated DeltaNet with several steps of the memory per token.

        q_t = unit(SiLU(conv(W_q x_t))) / √K    k_ti = unit(SiLU(conv(W_ki x_t)))  unit(u) = u / |u|
        v_ti = SiLU(conv(W_vi x_t))               β_ti = m σ(W_βi x_t)
        α_t = exp( −exp(A) softplus(W_α x_t + b_α) )
        S_t0 = α_t S_{t-1}
        S_ti = (I − β_ti k_ti k_tiᵀ) S_t{i-1} + β_ti k_ti v_tiᵀ                 i = 1 .. n
        y_t = W_y ( N(S_tnᵀ q_t) ⊙ swish(W_g x_t) )

    n is `products`. The product of n reflections can be any rotation in n dimensions, so that one
    layer tracks a permutation of n + 1 things, where β reaches m = `beta_max` = 2 (Siems et al.
    2025). With n = 1 it is `gated_deltanet`. Cuts are those of `gated_deltanet`:

        0  beta          β_ti → 1                                  3  unit    unit(u) → u
        1  delta         (I − β_ti k_ti k_tiᵀ) S_t{i-1} → S_t{i-1}  4  norm    N(u) → u
        2  convolution   conv(u) → u: q, k, v read one token       5  alpha   α_t → 1
        6  gate          swish(W_g x_t) → 1

    Without alpha (5) and gate (6) it is the DeltaProduct of the paper, and with n = 1 `deltanet`.

    Siems et al. 2025 (arXiv:2502.10297).
    """

    @config
    class Config(GatedConfig):
        """Number of heads and of steps, sizes, range of β, and the cuts, by name or number."""

        products: Annotated[int, Choice((1, 2, 3, 4))] = Field(2, ge=1)
        """n, the steps per token."""
        beta_max: BetaMax = Field(2.0, gt=0, le=2)
        cuts: Cuts[GatedDeltaCut] = frozenset()

    def __init__(self, config: Config, width: int, length: int):
        # Before the base class, which reads it.
        self.substeps = config.products
        super().__init__(config, width, length)

    def update(self, z: Parts) -> Update:
        """Return the coefficients of n steps; α decays before the first."""
        split = {}
        for name in ("k", "v", "beta"):
            if name in z:
                columns = z[name]
                split[name] = columns.chunk(self.substeps, -1)
        steps = []
        for i in range(self.substeps):
            own = dict(z)
            # The decay is one for the token: the first of its steps has it.
            if i > 0:
                own.pop("alpha", None)
            for name, parts in split.items():
                own[name] = parts[i]
            steps.append(super().update(own))
        # `MatrixCell` expects an axis of steps only where there are several.
        if self.substeps == 1:
            return steps[0]
        return stacked(steps)


KDACut = StrEnum("KDACut", "BETA DELTA CONVOLUTION UNIT NORM ALPHA GATE VECTOR")


@CELLS("kda")
class KDA(DeltaRule):
    """The delta rule with a decay per key channel, and an output gate.

        q_t = unit(SiLU(conv(W_q x_t))) / √K    k_t = unit(SiLU(conv(W_k x_t)))    unit(u) = u / |u|
        v_t = SiLU(conv(W_v x_t))               β_t = m σ(W_β x_t)
        α_t = exp( −exp(A) softplus(W_α2 W_α1 x_t + b_α) )
        S_t = (I − β_t k_t k_tᵀ) diag(α_t) S_{t-1} + β_t k_t v_tᵀ
        y_t = W_y ( N(S_tᵀ q_t) ⊙ σ(W_g2 W_g1 x_t + b_g) )

    α_t is one number per key channel, A and β_t one per head; W_α1 and W_g1 have V rows. A starts
    at log U(1, 16), softplus(b_α) log-uniform in [0.001, 0.1]. m is `beta_max`, as in `deltanet`.
    Cuts 0 to 6 are those of `gated_deltanet`:

        0  beta          β_t → 1                                         3  unit    unit(u) → u
        1  delta         (I − β_t k_t k_tᵀ) diag(α_t) S_{t-1} → diag(α_t) S_{t-1}
        2  convolution   conv(u) → u: q, k, v read one token             4  norm    N(u) → u
        5  alpha         diag(α_t) S_{t-1} → S_{t-1}
        6  gate          σ(W_g2 W_g1 x_t + b_g) → 1
        7  vector        diag(α_t) → α_t: one α per head

    Without alpha (5) and gate (6) it is `deltanet`.

    Kimi Team 2025 (arXiv:2510.26692).
    """

    owns = (
        "alpha",
        "gate",
        "log_rate",
        "up_alpha",
        "bias_alpha",
        "up_gate",
        "bias_gate",
    )
    removes = DeltaRule.removes | {
        "gate": {"gate", "up_gate", "bias_gate"},
        "alpha": {"alpha", "log_rate", "up_alpha", "bias_alpha"},
    }

    @config
    class Config(GatedConfig):
        """Number of heads, size of the values, range of β, and the cuts, by name or number."""

        expand_v: Expand = 1
        cuts: Annotated[frozenset[KDACut], cuts_of(KDACut, {KDACut.ALPHA: [KDACut.VECTOR]})] = (
            frozenset()
        )

    def log_alpha(self, z: Parts, like: Tensor) -> Tensor:
        if "alpha" not in z:
            return super().log_alpha(z, like)
        # By channels of the keys: KDA forgets each at its own rate.
        delta = linear(z["alpha"], self.w.up_alpha, self.w.bias_alpha)
        rate = self.w.log_rate.exp()
        decay = softplus(self.split_heads(delta))
        return -rate[:, None] * decay

    def update(self, z: Parts) -> Update:
        """Let the delta rule read the state after its decay."""
        update = super().update(z)
        if update.probe is None:
            return update
        # The decay comes first: (I − β k kᵀ) diag(α) is diag(α) − β k (α ⊙ k)ᵀ.
        decay = update.log_decay.exp()
        probe = decay * update.probe
        return update._replace(erase=update.key, probe=probe)

    def output_gate(self, gate: Tensor) -> Tensor:
        logits = linear(gate, self.w.up_gate, self.w.bias_gate)
        return logits.sigmoid()


CombaCut = StrEnum(
    "CombaCut", "BETA DELTA CONVOLUTION UNIT NORM ALPHA GATE FEEDBACK CORRECTION SPLR"
)
UNREAD = {
    CombaCut.DELTA: [CombaCut.SPLR],
    CombaCut.ALPHA: [CombaCut.SPLR],
    (CombaCut.DELTA, CombaCut.CORRECTION): [CombaCut.FEEDBACK],
}

UNSCALED = {CombaCut.UNIT, CombaCut.DELTA}
"""Cuts with which `unit_feedback` changes nothing."""


@CELLS("comba")
class Comba(GatedDelta):
    """Gated DeltaNet whose feedback reads the state before its decay, and a corrected query.

        p_t = σ(b) k_t                              b and d are one number per head
        q_t = unit(SiLU(conv(W_q x_t)) − d σ(b) SiLU(conv(W_k x_t))) / √K
        S_t = (α_t I − β_t k_t p_tᵀ) S_{t-1} + β_t k_t v_tᵀ
        y_t = W_y ( N(S_tᵀ q_t) ⊙ σ(W_g x_t) )

    k, v, α and β are those of `gated_deltanet`; b and d start at 1 (the authors start d at 0.02
    with 340M parameters). The eigenvalue α − β σ(b) of the step is in (−1, 1) for m = 1; with m = 2
    the state may grow (the authors use m = 2 with the cut splr only). Cuts 0 to 6 are those of
    `gated_deltanet`:

        0  beta          β_t → 1                                   3  unit        unit(u) → u
        1  delta         (α_t I − β_t k_t p_tᵀ) S_{t-1} → α_t S_{t-1}
        2  convolution   conv(u) → u: q, k, v read one token       4  norm        N(u) → u
        5  alpha         α_t → 1                                   7  feedback    σ(b) → 1
        6  gate          σ(W_g x_t) → 1
        8  correction    − d σ(b) SiLU(conv(W_k x_t)) → 0
        9  splr          α_t I − β_t k_t p_tᵀ → α_t (I − β_t k_t p_tᵀ): feedback after the decay

    Without feedback, correction and splr (7, 8, 9) it is `gated_deltanet`, up to the gate's
    function; without alpha, too (5, 7, 8).

    Text and code differ, and both are here (`unit_feedback`). Compared: the paper, the authors'
    code (AwesomeSeq/Comba-triton, b26afc0), flash-linear-attention 0.6.0:

        text                               code of both            option
        p_t = σ(b) k_t                     p_t = unit(σ(b) k_t)    unit_feedback: p_t = k_t

    Hu et al. 2025 (arXiv:2506.02475).
    """

    owns = GatedDelta.owns + ("bias_b", "skip")
    removes = GatedDelta.removes | {
        "feedback": {"bias_b"},
        "correction": {"skip"},
        ("delta", "correction"): {"bias_b"},
    }

    @config
    class Config(GatedConfig):
        """Number of heads, sizes, range of β, and the cuts, by name or number."""

        cuts: Annotated[frozenset[CombaCut], cuts_of(CombaCut, UNREAD)] = frozenset()
        unit_feedback: StrictBool = False
        """Feed back k_t, as the code does, and not σ(b) k_t."""

        @model_validator(mode="after")
        def _no_strength_without_feedback(self) -> Any:
            unread = self.cuts & {CombaCut.FEEDBACK, CombaCut.CORRECTION}
            if self.unit_feedback and (unread or self.cuts & UNSCALED):
                object.__setattr__(self, "unit_feedback", False)
                if not self.cuts & UNSCALED:  # nothing reads b
                    object.__setattr__(self, "cuts", self.cuts | {CombaCut.FEEDBACK})
            return self

    def update(self, z: Parts) -> Update:
        strength = 1.0
        if self.w.bias_b is not None:
            strength = self.w.bias_b.sigmoid()[:, None]
        if self.w.skip is not None:
            q = self.split_heads(z["q"])
            k = self.split_heads(z["k"])
            skip = self.w.skip[:, None]
            corrected = q - skip * strength * k
            z = z | {"q": corrected.flatten(-2)}
        update = super().update(z)
        if update.probe is None:
            return update
        if not self.config.unit_feedback:
            probe = strength * update.probe
            update = update._replace(probe=probe)
        if "splr" in self.config.cuts:
            return update
        # α S − β k pᵀ S: what is erased has no factor α.
        return update._replace(erase=update.key)

    def output_gate(self, gate: Tensor) -> Tensor:
        return gate.sigmoid()
