"""What may be done to a row without making it another: depth, starts, normalisers, initial weights.

The code of each is the field or option that its summary names. S0, S2, S3, S4; zoo.md 1.5, 2.1,
4.2 to 4.4.
"""

from lmzoo.catalogue import technique

technique(
    "initial_state_mixture",
    document="S0",
    source="S0",
    summary="A sequence is a mixture over W learned initial states (model.starts).",
)
technique(
    "norm",
    document="S0",
    source="S0; Zhang & Sennrich 2019 (arXiv:1910.07467)",
    summary="Normaliser of vectors: none, rms, l2, std, time_std_causal (model.norm).",
)
technique(
    "lr_warmup",
    document="S2",
    source="Vaswani et al. 2017 (arXiv:1706.03762)",
    summary="The learning rate rises linearly over the first steps (recipe.warmup).",
)
technique(
    "init_schemes",
    document="S2",
    source="Glorot & Bengio 2010; He et al. 2015 (arXiv:1502.01852)",
    summary="All matrices drawn by one scheme, biases 0 but where a field sets one (recipe.init).",
)
technique(
    "bidirectional",
    document="S4",
    source="Schuster & Paliwal 1997",
    summary="A second reader from the end; for encoders (seq2seq_dot_attention), not for an LM.",
)
technique(
    "num_layers",
    document="S4",
    source="El Hihi & Bengio 1995",
    summary="Cells stacked on one another (model.num_layers).",
)
technique(
    "spectral_init",
    document="S3",
    source="S3",
    summary="Recurrent weights that start with spectral radius 1 (model.cell.spectral).",
)
technique(
    "forget_bias",
    document="S4",
    source="Jozefowicz et al. 2015",
    summary="An LSTM that starts by remembering (model.cell.forget_bias).",
)
technique(
    "grad_clip",
    document="S3, S4",
    source="Pascanu et al. 2013 (arXiv:1211.5063)",
    summary="The gradient's global norm is kept below a threshold (recipe.clip).",
)
