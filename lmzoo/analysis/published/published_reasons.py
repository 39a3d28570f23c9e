"""Why a published number differs from that of the sound run, in one line per row."""

import json
from collections.abc import Mapping
from typing import Any

from lmzoo.analysis.published.published_rows import LEAKING, PublishedTable
from lmzoo.analysis.published.published_runs import PUBLISHED_EPOCH, VARIANTS
from lmzoo.analysis.text.formatting import format_number

PUBLISHED_DATA = {"split": "seed", "release": "S35-v4_3_0"}
"""The published data, as options of our corpora."""
RISES = "the published loss rises from epoch 20 to 30"
NOTES = {
    ("multi30k_word", "DLM46 {2;3;4;5}"): "the same function as cut gate_bias (2), write (7)",
    ("multi30k_word", "DLM46 {0;2;4;5}"): "the same function as DLM47 without mutations",
    ("multi30k_word", "DLM47 {4;6;10}"): "a bug in the published code disabled the positional "
    "prior",
    ("multi30k_word", "DLM51 {0;4;5}"): "its encoder and decoder used the cut MGU at that time",
    ("cath_l20", "DLM29"): RISES,
    ("cath_l20_arch", "DLM29"): RISES,
    ("autoencoder_word_l20", "DLM56 E=128 K=400"): RISES,
}  # fmt: skip
"""(table, row) -> a remark on this row, from the published code or the table itself."""


def explain_difference(table: PublishedTable, row: Mapping[str, Any]) -> str:
    """Return the known differences between a published number and the sound one.

    If the runs exist, the line says how much each difference changes the loss: the leak
    `leaking − sound`, the accumulated gradients `accumulated − sound`.
    """
    parts = []
    inputs = "inputs leak the future"
    if row["kind"] == "reconstruction":
        parts.append("a reconstruction, not a language model's loss")
        inputs = "inputs divided by their deviation, no leak because the whole sequence is an input"
    if row["kind"] == "bound":
        parts.append("a bound")
    if row["model"] in LEAKING:
        parts.append(f"{inputs}{_change(row, 'leaking')}")
    parts.append(f"gradients accumulated for an epoch{_change(row, 'accumulated')}")
    if row["recipes"]:
        parts.append(f"the sound recipe also has {row['recipes']}")
    if row["published"] is not None and row["sound"] is not None:
        together = "all" if row["recipes"] else "both"
        total = format_number(row["published"] - row["sound"], "+.3f")
        parts.append(f"{together} together {total}")
    note = NOTES.get((table.name, row["row"]))
    return "; ".join([*parts, *([note] if note else []), *_setting_differences(table, row)])


def _change(row: Mapping[str, Any], variant: str) -> str:
    if row[variant] is None or row["sound"] is None:
        return ""
    return f" ({format_number(row[variant] - row['sound'], '+.3f')})"


def _setting_differences(table: PublishedTable, row: Mapping[str, Any]) -> list[str]:
    """Return the differences of our run's data, sizes and epochs from the published ones."""
    if not row["config"]:
        return []
    config = json.loads(row["config"])
    model, corpus, parts = config["model"], config["corpus"], []
    ours = {
        "E": model["width"],
        "K": model.get("emission", {}).get("components"),
        "V": config["vocab"],
    }
    published = {"E": table.E, "K": table.K, "V": table.vocab}
    stated = (part.split("=") for part in row["row"].split() if part[:2] in ("E=", "K="))
    published |= {name: int(value) for name, value in stated}
    if corpus["name"] not in table.corpora:
        parts.append(f"ours on {corpus['name']}")
    parts += [
        f"ours has {name}={corpus[name]}, not {value}"
        for name, value in PUBLISHED_DATA.items()
        if corpus.get(name, value) != value
    ]
    parts += [
        f"ours has {name}={own:,}, not {value:,}"
        for (name, own), value in zip(ours.items(), published.values(), strict=True)
        if own is not None and value is not None and own != value
    ]
    epochs = {row[f"{variant}_epoch"] for variant in VARIANTS} - {None, PUBLISHED_EPOCH}
    if epochs:
        unit = "epoch" if epochs == {1} else "epochs"
        parts.append(f"ours after {', '.join(map(str, sorted(epochs)))} {unit}")
    return parts
