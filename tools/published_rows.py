"""The published result tables of source document S0, and which runs reproduce each row.

A published row names a model by its number, the mutated positions, and sizes where it states them.
A run reproduces the row if its model's config has all fields of the row (`MODEL_AND_CELL`,
`MGRU_VARIANTS`, the named cuts) and those of no other row. Sizes that the row does not state may
differ: a smaller run is shown too, and the reasons say that it is smaller.

Source: S0 (result tables; DLM26 to DLM56).
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "published_tables"
CUT_NAMES = (
    *("input_to_gate", "state_to_gate", "gate_bias", "input_to_candidate"),
    *("state_to_candidate", "candidate_bias", "carry", "write"),
)
"""Position -> name of the cut of DLM46."""
MGRU_NAMES = (
    *("state_to_gate", "input_to_candidate", "carry", "write", "squash=sigmoid", "keep=True"),
    *("gate=output=centred", "gate=raw", "output=raw", "gate=logit"),
    *("carry=prior", "carry=bilinear"),
)
"""Position -> name of the switch of DLM47."""
MGRU_FIELDS = ("squash", "keep", "gate", "output", "carry")
MGRU_VARIANTS: dict[frozenset[int], tuple[Any, ...]] = {
    frozenset(): ("tanh", False, "raw", "raw", "state"),
    frozenset({4}): ("sigmoid", False, "raw", "raw", "state"),
    frozenset({5}): ("tanh", True, "raw", "raw", "state"),
    frozenset({4, 6}): ("sigmoid", False, "centred", "centred", "state"),
    frozenset({4, 6, 7}): ("sigmoid", False, "raw", "centred", "state"),
    frozenset({4, 6, 8}): ("sigmoid", False, "centred", "raw", "state"),
    frozenset({4, 6, 9}): ("sigmoid", False, "logit", "centred", "state"),
    frozenset({4, 6, 10}): ("sigmoid", False, "centred", "centred", "prior"),
    frozenset({4, 6, 11}): ("sigmoid", False, "centred", "centred", "bilinear"),
}
"""Positions of DLM47 -> values of `MGRU_FIELDS`."""


@dataclass(frozen=True)
class PublishedRow:
    """One row of a published table."""

    model: str
    positions: frozenset[int]
    """Mutated positions, as numbered in the source document."""
    sizes: Mapping[str, int]
    """E, K, W, D where the row states them."""
    e20: float | None
    e30: float | None

    @property
    def label(self) -> str:
        """The row as published: the model, the mutated positions, the sizes."""
        positions = "{" + ";".join(map(str, sorted(self.positions))) + "}" if self.positions else ""
        return " ".join(filter(None, (self.model, positions, self._sizes)))

    @property
    def name(self) -> str:
        """The row with its mutations by name, as "DLM46 cut state_to_candidate (4)"."""
        names, kind = (MGRU_NAMES, "") if self.model == "DLM47" else (CUT_NAMES, "cut ")
        mutations = ", ".join(f"{names[i]} ({i})" for i in sorted(self.positions))
        return " ".join(filter(None, (self.model, mutations and kind + mutations, self._sizes)))

    @property
    def _sizes(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.sizes.items())


@dataclass(frozen=True)
class PublishedTable:
    """One published table, with its data and sizes."""

    name: str
    title: str
    corpora: tuple[str, ...]
    length: int
    unit: str
    E: int
    K: int
    vocab: int | None

    def rows(self) -> list[PublishedRow]:
        """Return the rows in the published order."""
        with (FOLDER / f"{self.name}.csv").open(encoding="utf-8") as file:
            return [_parse_row(record) for record in csv.DictReader(file)]


WORDS = ("multi30k_en",), 20, "word", 128, 400, 38_783
CHARACTERS = ("multi30k_en_char",), 100, "character", 128, 90, 82
PROTEINS = ("cath",), 20, "residue", 128, 90, None
TABLES = (
    PublishedTable("multi30k_word", "Multi30k, English words, T=20", *WORDS),
    PublishedTable("multi30k_char_l100", "Multi30k, English characters, T=100", *CHARACTERS),
    PublishedTable("cath_l20", "CATH S35 domains, T=20", *PROTEINS),
    PublishedTable("cath_l20_arch", "CATH S35 domains, T=20, by architecture", *PROTEINS),
    PublishedTable("cath_l100", "CATH S35 domains, T=100", ("cath",), 100, *PROTEINS[2:]),
    PublishedTable("autoencoder_word_l20", "autoencoders, Multi30k words, T=20", *WORDS),
    PublishedTable(
        "autoencoder_char_l100", "autoencoders, Multi30k characters, T=100", *CHARACTERS
    ),
)

MODEL_AND_CELL: dict[str, tuple[str, str | None]] = {
    "DLM26": ("recurrent_lm", "lstm"),
    "DLM29": ("recurrent_lm", "rnn"),
    "DLM40": ("transformer_decoder", None),
    "DLM46": ("recurrent_lm", "mgu"),
    "DLM47": ("recurrent_lm", "mgru"),
    "DLM50": ("gru_vae", "rnn"),
    "DLM51": ("gru_vae", "gru"),
    "DLM53": ("gru_autoencoder", "gru"),
    "DLM54": ("gru_autoencoder", "rnn"),
    "DLM55": ("linear_autoencoder", None),
    "DLM56": ("mlp_autoencoder", None),
}
"""Number of a published model -> registry names of its model and cell."""
ARCHITECTURE_POSITIONS = {"MGRU": "4;6"}
"""Mutated positions in the one table that names architectures instead of positions."""
LEAKING = frozenset({"DLM26", "DLM29", "DLM46", "DLM47", "DLM50", "DLM51", "DLM53", "DLM54"})
"""Models whose published inputs were divided by their standard deviation over time."""
KIND_OF_MODEL = {
    **dict.fromkeys(("DLM50", "DLM51"), "bound"),
    **dict.fromkeys(("DLM53", "DLM54", "DLM55", "DLM56"), "reconstruction"),
}
"""Kind of score of each model; the others have an exact score."""


def matches_row(model: Mapping[str, Any], row: PublishedRow, table: PublishedTable) -> bool:
    """Return whether a run's model config is that of a published row."""
    name, cell = MODEL_AND_CELL[row.model]
    own = model.get("cell") or {}
    if model["name"] != name or not _has_sizes(model, row, table):
        return False
    if model.get("noise_std") or model.get("gaussian") or model.get("num_layers", 1) != 1:
        return False
    if name in ("recurrent_lm", "gru_vae", "gru_autoencoder"):
        if model["emission"]["name"] != "mixture":
            return False
        if cell in ("rnn", "lstm"):
            return own["name"] == cell and own.get("activation", "tanh") == "tanh"
    if row.model == "DLM47":
        variant = tuple(own.get(field) for field in MGRU_FIELDS)
        is_mgru = own["name"] == "mgru" and not own["cuts"]
        return is_mgru and variant == MGRU_VARIANTS[row.positions]
    if row.model == "DLM46" or row.positions:
        return own["name"] == "mgu" and set(own["cuts"]) == named_cuts(row.positions)
    return cell is None or own["name"] == cell


def named_cuts(positions: frozenset[int]) -> set[str]:
    """Return the names of cut positions, in the canonical form of a cell's config.

    Without all three of its terms the candidate is 0, which is the same as a cut of `write`.
    """
    candidate = {3, 4, 5}
    if candidate <= positions:
        positions = (positions | {7}) - candidate
    return {CUT_NAMES[i] for i in positions}


def _has_sizes(model: Mapping[str, Any], row: PublishedRow, table: PublishedTable) -> bool:
    """Return whether the model has the sizes that distinguish the rows of this table."""
    stated = {r.sizes["E"] for r in table.rows() if "E" in r.sizes and r.model == row.model}
    if "E" in row.sizes:
        if model["width"] != row.sizes["E"]:
            return False
    elif model["width"] in stated:
        return False
    if row.model == "DLM40":
        layers, heads = row.sizes.get("D", 1), row.sizes.get("W", 8)
        return model["layers"] == layers and model["attention"]["heads"] == heads
    return model.get("starts", 0) == row.sizes.get("W", 0)


def _parse_row(record: Mapping[str, str]) -> PublishedRow:
    architecture = ARCHITECTURE_POSITIONS.get(record.get("architecture", ""), "-1")
    text = record.get("mutated_positions", architecture)
    positions = frozenset() if text == "-1" else frozenset(map(int, text.split(";")))
    sizes = {name: int(record[name]) for name in "EKWD" if record[name]}
    e30 = record["x"] if "x" in record else record["loss_e30"]
    return PublishedRow(record["model"], positions, sizes, _loss(record["loss_e20"]), _loss(e30))


def _loss(text: str) -> float | None:
    return float(text) if text else None
