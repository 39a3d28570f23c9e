"""Rows for techniques: options of other rows. The summary names the field that sets the option."""

from lmzoo.base.registry import technique

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
):  # fmt: skip
    technique(_name, document=_document, source=_source, summary=_summary)
