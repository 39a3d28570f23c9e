"""Rows for techniques: options of other rows. The summary names the field that sets the option."""

from lmzoo.catalogue import technique

technique(
    "initial_state_mixture",
    document="S0",
    source="S0",
    summary="Mixture of the whole sequence over W learned initial states (model.starts).",
)
technique(
    "norm",
    document="S0",
    source="S0; Zhang & Sennrich 2019 (arXiv:1910.07467)",
    summary="Normaliser of vectors: none, rms, l2, std or time_std_causal (model.norm).",
)
technique(
    "lr_warmup",
    document="S2",
    source="Vaswani et al. 2017 (arXiv:1706.03762)",
    summary="Linear increase of the learning rate over the first steps (recipe.warmup).",
)
technique(
    "init_schemes",
    document="S2",
    source="Glorot & Bengio 2010; He et al. 2015 (arXiv:1502.01852)",
    summary="One initialiser for all matrices; biases 0 unless a field sets them (recipe.init).",
)
technique(
    "bidirectional",
    document="S4",
    source="Schuster & Paliwal 1997",
    summary="A second encoder that reads backwards (seq2seq_dot_attention only).",
)
technique(
    "num_layers",
    document="S4",
    source="El Hihi & Bengio 1995",
    summary="Several stacked cells (model.num_layers).",
)
technique(
    "spectral_init",
    document="S3",
    source="S3",
    summary="Initial recurrent weights with spectral radius 1 (model.cell.spectral).",
)
technique(
    "forget_bias",
    document="S4",
    source="Jozefowicz et al. 2015",
    summary="Initial bias of the LSTM forget gate (model.cell.forget_bias).",
)
technique(
    "grad_clip",
    document="S3, S4",
    source="Pascanu et al. 2013 (arXiv:1211.5063)",
    summary="Clipping of the global gradient norm (recipe.clip).",
)
