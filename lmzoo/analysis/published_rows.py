"""S0's result tables, as printed, and which of our runs is each of their rows.

A row names a model by number, the positions cut or switched, and sizes where it states them. A
run is that row if its model's config holds all the fields that make the row (`SHAPES`,
`MGRU_SWITCHES`, the named cuts) and no other row's. Sizes that a row does not state are free: a
smaller run is still shown, and the reasons say that it is smaller.

zoo.md 1.10, 2.2, 2.3, 3.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "published_tables"


@dataclass(frozen=True)
class Row:
    """One printed row."""

    model: str
    mutated: frozenset[int]
    sizes: Mapping[str, int]
    """E, K, W, D where the row states them."""
    e20: float | None
    e30: float | None

    @property
    def label(self) -> str:
        """As printed: the model, what was mutated, the sizes."""
        mutated = "{" + ";".join(map(str, sorted(self.mutated))) + "}" if self.mutated else ""
        sizes = " ".join(f"{name}={value}" for name, value in self.sizes.items())
        return " ".join(filter(None, (self.model, mutated, sizes)))


@dataclass(frozen=True)
class Table:
    """One printed table and the setting it was made in."""

    name: str
    title: str
    corpora: tuple[str, ...]
    length: int
    unit: str
    E: int
    K: int
    vocab: int | None

    def rows(self) -> list[Row]:
        """In the printed order."""
        with (FOLDER / f"{self.name}.csv").open(encoding="utf-8") as file:
            return [_row(record) for record in csv.DictReader(file)]


WORDS = ("multi30k_en",), 20, "word", 128, 400, 38_783
CHARACTERS = ("multi30k_en_char",), 100, "character", 128, 90, 82
TABLES = (
    Table("multi30k_word", "Multi30k, English words, T=20", *WORDS),
    Table("multi30k_char_l100", "Multi30k, English characters, T=100", *CHARACTERS),
    Table("cath_l20", "CATH S35 domains, T=20", ("cath",), 20, "residue", 128, 90, None),
    Table("cath_l20_arch", "the same, by architecture", ("cath",), 20, "residue", 128, 90, None),
    Table("cath_l100", "CATH S35 domains, T=100", ("cath",), 100, "residue", 128, 90, None),
    Table("autoencoder_word_l20", "autoencoders, Multi30k words, T=20", *WORDS),
    Table("autoencoder_char_l100", "autoencoders, Multi30k characters, T=100", *CHARACTERS),
)

CUTS = (
    *("input_to_gate", "state_to_gate", "gate_bias", "input_to_candidate"),
    *("state_to_candidate", "candidate_bias", "carry", "write"),
)
MGRU_SWITCHES = {
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
"""Positions -> squash, keep, gate, output, carry."""
SHAPES: dict[str, tuple[str, str | None]] = {
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
"""Number -> model, cell."""
ARCHITECTURES = {"MGRU": "4;6"}
"""What the one table that names architectures leaves unsaid; its numbers are those of {4;6}."""
LEAKING = frozenset({"DLM26", "DLM29", "DLM46", "DLM47", "DLM50", "DLM51", "DLM53", "DLM54"})
"""Rows whose published inputs were divided by their deviation over time."""
KINDS = {
    **dict.fromkeys(("DLM50", "DLM51"), "bound"),
    **dict.fromkeys(("DLM53", "DLM54", "DLM55", "DLM56"), "reconstruction"),
}


def is_row(model: Mapping[str, Any], row: Row, table: Table) -> bool:
    """Whether a run's model config is this row's."""
    name, cell = SHAPES[row.model]
    own = model.get("cell") or {}
    if model["name"] != name or not _sized(model, row, table):
        return False
    if model.get("noise_std") or model.get("gaussian") or model.get("num_layers", 1) != 1:
        return False
    if name in ("recurrent_lm", "gru_vae", "gru_autoencoder"):
        if model["emission"]["name"] != "mixture":
            return False
        if cell in ("rnn", "lstm"):
            return own["name"] == cell and own.get("activation", "tanh") == "tanh"
    if row.model == "DLM47":
        return (
            own["name"] == "mgru"
            and not own["cuts"]
            and _switches(own) == MGRU_SWITCHES[row.mutated]
        )
    if row.model == "DLM46" or row.mutated:
        return own["name"] == "mgu" and set(own["cuts"]) == named_cuts(row.mutated)
    return cell is None or own["name"] == cell


def named_cuts(mutated: frozenset[int]) -> set[str]:
    """The cuts by name, in the form that our configs take.

    Without all three of its terms the candidate is 0, which is to say that nothing is written.
    """
    candidate = {3, 4, 5}
    if candidate <= mutated:
        mutated = (mutated | {7}) - candidate
    return {CUTS[i] for i in mutated}


def _switches(cell: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(cell[name] for name in ("squash", "keep", "gate", "output", "carry"))


def _sized(model: Mapping[str, Any], row: Row, table: Table) -> bool:
    """Whether the sizes that tell the rows of this table apart are this row's."""
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


def _row(record: Mapping[str, str]) -> Row:
    mutated = record.get(
        "mutated_positions", ARCHITECTURES.get(record.get("architecture", ""), "-1")
    )
    positions = frozenset() if mutated == "-1" else frozenset(map(int, mutated.split(";")))
    sizes = {name: int(record[name]) for name in "EKWD" if record[name]}
    e30 = record["x"] if "x" in record else record["loss_e30"]
    return Row(record["model"], positions, sizes, _number(record["loss_e20"]), _number(e30))


def _number(text: str) -> float | None:
    return float(text) if text else None
