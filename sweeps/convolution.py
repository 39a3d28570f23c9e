"""Which part of a gated convolutional model matters?

Dauphin et al. 2017 (arXiv:1612.08083, sections 5.2 and 5.3) compare the gated linear unit with the
gated tanh unit, with tanh and ReLU without a gate, and with a bilinear and a linear layer, and find
it the best. The units without a gate have fewer weights. The other cuts take away the earlier
tokens of value or gate, and the residual.
"""

from lmzoo import Point, Study, main

ROW = "gated_convolution"
UNITS = {
    "gated tanh unit": {"activation": "tanh"},
    "bilinear": {"cuts": ["squash"]},
    "linear": {"cuts": ["gate"]},
    "tanh": {"cuts": ["gate"], "activation": "tanh"},
    "ReLU": {"cuts": ["gate"], "activation": "relu"},
}
CUTS = ("value_past", "gate_past", "residual")

STUDY = Study(
    name="convolution",
    question="Which part of a gated convolutional model matters?",
    points=(
        Point("gated linear unit", ROW),
        *(Point(name, ROW, fields) for name, fields in UNITS.items()),
        *(Point(f"cut {cut}", ROW, {"cuts": [cut]}) for cut in CUTS),
    ),
    reference="gated linear unit",
)

if __name__ == "__main__":
    main(STUDY)
