"""Rows that are a recurrent language model (`recurrent_lm.py`) with some fields set."""

from collections.abc import Mapping
from typing import Any

from lmzoo.base.registry import preset, technique

Fields = Mapping[str, Any]

_PLAIN: Fields = {"emission": "vector", "norm": "none"}
_NORMALISED: Fields = {"emission": "vector", "norm": "rms"}
_MIXTURE: Fields = {"emission": "mixture", "norm": "rms"}

_LSTM = "Hochreiter & Schmidhuber 1997"
_GRU = "Cho et al. 2014 (arXiv:1406.1078)"
_GATED_FEEDBACK = "Chung et al. 2015 (arXiv:1502.02367)"


def _row(
    name: str,
    cell: str | Fields,
    head: Fields,
    document: str,
    source: str,
    summary: str,
    *aliases: str,
    **rest: str,
) -> None:
    preset(
        name, model="recurrent_lm", fields={"cell": cell, **head}, aliases=aliases,
        document=document, source=source, summary=summary, **rest,
    )  # fmt: skip


for _args in (
    ("rnn_lm", "rnn", _PLAIN, "S0", "Elman 1990; S0", "Tanh RNN with a tied softmax.", "DLM11"),
    ("lstm_lm", "lstm", _PLAIN, "S0, S3", f"{_LSTM}; S0, S3", "LSTM with a tied softmax.", "DLM12"),
    ("lstm_lm_sphere", "lstm", _NORMALISED, "S0", "S0",
     "LSTM with normalised inputs and outputs, tied softmax.", "DLM23"),
    ("lstm_mixture", "lstm", _MIXTURE, "S0", "S0", "LSTM with mixture emission.", "DLM26"),
    ("rnn_mixture", "rnn", _MIXTURE, "S0", "S0", "Tanh RNN with mixture emission.", "DLM29"),
    ("gru_lm_sphere", "gru", _NORMALISED, "S0", f"{_GRU}; S0",
     "GRU with normalised inputs and outputs, tied softmax.", "DLM43"),
    ("gru_mixture", "gru", _MIXTURE, "S0", f"{_GRU}; S0", "GRU with mixture emission.", "DLM44",
     "DLM45"),
    ("mutable_mgu_mixture", "mgu", _MIXTURE, "S0", "Zhou et al. 2016 (arXiv:1603.09420); S0",
     "Minimal gated unit with eight paths that can be cut, mixture emission.", "DLM46"),
    ("mutable_mgru_mixture", "mgru", _MIXTURE, "S0", "S0",
     "Minimal gated recurrent unit with twelve switches, mixture emission.", "DLM47"),
    ("rnn_vanilla", {"name": "rnn"}, _PLAIN, "S3", "Elman 1990",
     "RNN whose activation function can be set; the default is the same as rnn_lm."),
    ("lstm_peephole", {"name": "lstm_peephole"}, _PLAIN, "S3", "Gers & Schmidhuber 2000",
     "LSTM whose gates also read the cell state."),
    ("lstm_coupled", {"name": "lstm", "forget": "coupled"}, _PLAIN, "S3",
     "Greff et al. 2015 (arXiv:1503.04069)", "LSTM with a coupled forget gate, f = 1 − i."),
    ("gru", {"name": "gru"}, _PLAIN, "S3, S4", _GRU,
     "GRU whose reset and update conventions can be set; the default is PyTorch's."),
    ("ugrnn", {"name": "gru", "cuts": ["reset"]}, _PLAIN, "",
     "Collins et al. 2017 (arXiv:1611.09913)", "Update gate RNN: a GRU without the reset gate."),
    ("janet", {"name": "janet"}, _PLAIN, "", "van der Westhuizen & Lasenby 2018 (arXiv:1804.04849)",
     "LSTM with the forget gate alone."),
    ("gated_feedback_rnn", {"name": "gated_feedback"}, _PLAIN, "S2", _GATED_FEEDBACK,
     "Stacked tanh RNNs in which each layer reads all layers through gates."),
    ("gated_feedback_lstm", {"name": "gated_feedback", "unit": "lstm"}, _PLAIN, "S2",
     _GATED_FEEDBACK, "Stacked LSTMs in which each layer reads all layers through gates."),
    ("gated_feedback_gru", {"name": "gated_feedback", "unit": "gru"}, _PLAIN, "S2", _GATED_FEEDBACK,
     "Stacked GRUs in which each layer reads all layers through gates."),
    ("hm_lstm", {"name": "hm_lstm"}, _PLAIN, "S2", "Chung et al. 2017 (arXiv:1609.01704)",
     "Hierarchical multiscale LSTM: stacked LSTMs with learned segment boundaries."),
    ("grid_lstm", {"name": "grid_lstm"}, _PLAIN, "S2",
     "Kalchbrenner et al. 2016 (arXiv:1507.01526)", "Grid LSTM: LSTMs along time and along depth."),
):  # fmt: skip
    _row(*_args)  # type: ignore[arg-type]


_row(
    "lstm_no_forget", {"name": "lstm", "forget": "none"}, _PLAIN, "S4", _LSTM,
    "LSTM without a forget gate, f = 1.", family="technique",
)  # fmt: skip
for _variant in (1, 2, 3):
    _row(
        f"mut{_variant}", {"name": "mut", "variant": _variant}, _PLAIN, "",
        "Jozefowicz et al. 2015 (http://proceedings.mlr.press/v37/jozefowicz15.html)",
        f"MUT{_variant}, a unit with two gates from a search by mutation.",
    )  # fmt: skip
_row(
    "hamming_emission", "lstm", {"emission": "hamming", "norm": "none"}, "S1", "S1",
    "LSTM whose emission counts mismatching groups of token codes.", family="emission",
)  # fmt: skip

_CURVED = {"name": "gated_deltanet", "preconditioned": True}
_BARE: Fields = {
    "name": "block",
    "cuts": ["convolution", "output_gate"],
}
"""For cells that have a convolution and an output gate of their own."""
_LAYERS = [{**_BARE, "inner": cell} for cell in ("gla", "gla", "attention", "gla")]

for _name, _cell, _source, _summary in (
    ("min_gru", "min_gru", "Feng et al. 2024 (arXiv:2410.01201)",
     "Minimal GRU: gate and candidate read the token only; a parallel scan."),
    ("min_lstm", "min_lstm", "Feng et al. 2024 (arXiv:2410.01201)",
     "Minimal LSTM: two normalised gates that read the token only."),
    ("qrnn", "qrnn", "Bradbury et al. 2017 (arXiv:1611.01576)",
     "Gated pooling of a causal convolution."),
    ("sru", "sru", "Lei et al. 2018 (arXiv:1709.02755)", "Elementwise recurrence with a highway."),
    ("lru", "lru", "Orvieto et al. 2023 (arXiv:2303.06349)", "Diagonal complex linear recurrence."),
    ("rg_lru", "rg_lru", "De et al. 2024 (arXiv:2402.19427)",
     "Diagonal recurrence whose decay and input are gated by the token (Griffin)."),
    ("hgrn2", "hgrn2", "Qin et al. 2024 (arXiv:2404.07904)",
     "Linear recurrence with a matrix as state and bounded decays by row."),
    ("slstm", "slstm", "Beck et al. 2024 (arXiv:2405.04517)",
     "LSTM with exponential gates and a normaliser state (xLSTM)."),
    ("retnet", "retention", "Sun et al. 2023 (arXiv:2307.08621)",
     "Retention: linear attention with a fixed decay per head."),
    ("gla", "gla", "Yang et al. 2024 (arXiv:2312.06635)",
     "Gated linear attention: the decay of each key channel reads the token."),
    ("mamba", "mamba", "Gu & Dao 2023 (arXiv:2312.00752)",
     "Selective state space with a decay per channel and state."),
    ("mamba2", "mamba2", "Dao & Gu 2024 (arXiv:2405.21060)",
     "Selective state space with a decay per head."),
    ("mamba3", "mamba3", "Lahoti et al. 2026 (arXiv:2603.15569)",
     "Selective state space with a trapezoidal step and a state that turns."),
    ("deltanet", "deltanet", "Yang et al. 2024 (arXiv:2406.06484)",
     "Linear attention that replaces the value stored under a key."),
    ("gated_deltanet", "gated_deltanet", "Yang et al. 2025 (arXiv:2412.06464)",
     "DeltaNet with a decay that reads the token, and an output gate."),
    ("deltaproduct", "deltaproduct", "Siems et al. 2025 (arXiv:2502.10297)",
     "Gated DeltaNet with several steps of the memory per token."),
    ("kda", "kda", "Kimi Team 2025 (arXiv:2510.26692)",
     "Kimi Delta Attention: gated DeltaNet with a decay per key channel."),
    ("gated_deltanet2", "gated_deltanet2", "Hatamizadeh et al. 2026 (arXiv:2605.22791)",
     "Kimi Delta Attention with a gate for erasing and one for writing, per channel."),
    ("comba", "comba", "Hu et al. 2025 (arXiv:2506.02475)",
     "Gated DeltaNet with feedback of another strength than the write, and a corrected query."),
    ("preconditioned_deltanet", _CURVED, "Tumma et al. 2026 (arXiv:2604.21100)",
     "Gated DeltaNet that divides the key it writes by the curvature of its channels."),
    ("mesa", "mesa", "von Oswald et al. 2025 (arXiv:2506.05233)",
     "Linear attention whose query solves for the weights of the keys so far (MesaNet)."),
    ("m2rnn", "m2rnn", "Mishra et al. 2026 (arXiv:2603.14360)",
     "Tanh recurrence with a matrix as state and a forget gate."),
    ("mlstm", "mlstm", "Beck et al. 2024 (arXiv:2405.04517)",
     "LSTM with exponential gates and a matrix as memory (xLSTM)."),
    ("rwkv7", "rwkv7", "Peng et al. 2025 (arXiv:2503.14456)",
     "Generalised delta rule with a decay and a rate per channel."),
    ("griffin", "griffin", "De et al. 2024 (arXiv:2402.19427)",
     "RG-LRU between linear maps, with a short convolution and an output gate."),
    ("min_gru_block", "block", "Feng et al. 2024 (arXiv:2410.01201)",
     "Minimal GRU in a block: short convolution, output gate, norm, feed-forward part."),
    ("gated_deltanet_block", {**_BARE, "inner": {"name": "gated_deltanet"}},
     "Yang et al. 2025 (arXiv:2412.06464)",
     "Gated DeltaNet with norms, residuals and a feed-forward part."),
    ("hybrid", {"name": "hybrid", "layers": _LAYERS}, "Kimi Team 2025 (arXiv:2510.26692)",
     "Blocks of gated linear attention and one of softmax attention; any layers in any order."),
):  # fmt: skip
    _row(_name, _cell, _PLAIN, "", _source, _summary)


for _name, _document, _source, _summary in (
    ("initial_state_mixture", "S0", "S0",
     "Mixture of the whole sequence over W learned initial states (model.starts)."),
    ("norm", "S0", "S0; Zhang & Sennrich 2019 (arXiv:1910.07467)",
     "Normaliser of vectors: none, rms, l2, std or time_std_causal (model.norm)."),
    ("lr_warmup", "S2", "Vaswani et al. 2017 (arXiv:1706.03762)",
     "Linear increase of the learning rate over the first steps (recipe.warmup)."),
    ("init_schemes", "S2", "Glorot & Bengio 2010; He et al. 2015 (arXiv:1502.01852)",
     "One initialiser for all matrices; biases 0 unless a field sets them (recipe.init)."),
    ("bidirectional", "S4", "Schuster & Paliwal 1997",
     "A second encoder that reads backwards (seq2seq_dot_attention only)."),
    ("num_layers", "S4", "El Hihi & Bengio 1995", "Several stacked cells (model.num_layers)."),
    ("spectral_init", "S3", "S3",
     "Initial recurrent weights with spectral radius 1 (model.cell.spectral)."),
    ("forget_bias", "S4", "Jozefowicz et al. 2015",
     "Initial bias of the LSTM forget gate (model.cell.forget_bias)."),
    ("grad_clip", "S3, S4", "Pascanu et al. 2013 (arXiv:1211.5063)",
     "Clipping of the gradient norm (recipe.clip) or of each number (recipe.clip_value)."),
    ("muon", "", "Jordan 2024; Liu et al. 2025 (arXiv:2502.16982)",
     "Orthogonalised updates of matrices, AdamW for the rest (recipe.optimiser)."),
    ("wsd", "", "Hu et al. 2024 (arXiv:2404.06395)",
     "A rate that is constant and falls late (recipe.schedule)."),
    ("mup", "", "Yang et al. 2022 (arXiv:2203.03466)",
     "Draws and rates with which widths share their best rate (recipe.parametrisation)."),
):  # fmt: skip
    technique(_name, document=_document, source=_source, summary=_summary)
