"""What the printed tables beside ours say in words: cells, reasons, whether the orders agree.

A row's reason names what is known to differ between the printed number and the sound one, and
with the runs at hand says how much each did: the leak is `leaking − sound`, the gradients kept
for an epoch `kept − sound`. Orders are compared by Kendall's tau within one kind of score.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from lmzoo.analysis.agreement import Agreement, kendall
from lmzoo.analysis.baseline_comparison import losers, verdict
from lmzoo.analysis.formatting import number
from lmzoo.analysis.published_rows import LEAKING, Table
from lmzoo.analysis.render import Report, Sheet
from lmzoo.analysis.reproduction import WAYS

NOT_RUN = "not run"
DATA = {"split": "seed", "release": "S35-v4_3_0"}
"""What S0's data were, in our corpora's own options."""
SOME = {"leaking": "leaking: only the former", "kept": "kept: only the latter"}
"""Columns that stand only where they hold something."""
NOTES = {
    ("multi30k_word", "DLM46 {2;3;4;5}"): "the same function as {2;7}",
    ("multi30k_word", "DLM46 {0;2;4;5}"): "the same function as DLM47's wild type",
    ("multi30k_word", "DLM47 {4;6;10}"): "printed with a positional prior that a slip made inert",
    ("multi30k_word", "DLM51 {0;4;5}"): "its encoder and decoder then used the cut MGU",
    ("cath_l20", "DLM29"): "printed loss rises from epoch 20 to 30",
    ("cath_l20_arch", "DLM29"): "printed loss rises from epoch 20 to 30",
    ("autoencoder_word_l20", "DLM56 E=128 K=400"): "printed loss rises from epoch 20 to 30",
}  # fmt: skip
"""What S0's code or its own table says of single rows."""


def verdicts(found: Sequence[tuple[Table, pl.DataFrame]]) -> Report:
    """The report of some tables."""
    sheets = []
    for table, frame in found:
        sheets.append(_numbers(table, frame))
        sheets.append(_reasons(table, frame))
    named = [frame.with_columns(table=pl.lit(table.name)) for table, frame in found]
    return Report(
        heading=(
            "S0's printed tables beside ours: mean of sentences' mean loss, nats per token",
            "printed: after 20 and 30 epochs, one seed, on its held-out part; ours: validation at "
            "epoch 20 or the last before it, means over seeds with 95 % intervals",
            "as published: inputs divided by their deviation over time, gradients kept for an "
            + "; ".join(
                ["epoch", *(SOME[way] for way in SOME if _ran(found, way)), "sound: neither"]
            ),
        ),
        sheets=tuple(sheets),
        legend=tuple(
            line
            for table, frame in found
            for line in (*agreements(table, frame), *counting(table, frame))
        ),
        frame=pl.concat(named, how="diagonal_relaxed"),
        json_columns=frozenset({"config"}),
    )


def _ran(found: Sequence[tuple[Table, pl.DataFrame]], way: str) -> bool:
    """Whether any row of any table was run this way, and so has a column for it."""
    return any(bool(frame[f"{way}_seeds"].sum()) for _, frame in found)


def agreements(table: Table, frame: pl.DataFrame) -> list[str]:
    """One line per kind of score: how far the orders agree."""
    lines = []
    for (kind,), part in frame.group_by("kind", maintain_order=True):
        printed = _column(part, "e20")
        pairs = [("its own epoch 30", kendall(printed, _column(part, "e30")))]
        pairs += [
            (name, kendall(printed, _column(part, way)))
            for way, name in zip(WAYS, ("ours as published", *WAYS[1:]), strict=True)
        ]
        said = [f"{name} {_tau(tau)}" for name, tau in pairs if tau.rows > 1]
        if said:
            lines.append(
                f"{table.name}, order of {kind} rows at epoch 20, τ with: {'; '.join(said)}"
            )
    return lines


def counting(table: Table, frame: pl.DataFrame) -> list[str]:
    """What counting has on our data, and which sound rows that are language models lose to it."""
    lines = []
    for (unigram, kn5), part in frame.drop_nulls("kn5").group_by(
        "unigram", "kn5", maintain_order=True
    ):
        said = f"{table.name}, counting on the same data: Kneser-Ney 5-gram {number(kn5, '.3f')}"
        said += f", unigram {number(unigram, '.3f')}" if unigram is not None else ""
        judged = [
            (row["row"], verdict(row["sound"] - kn5, row["sound_half"]), row["sound"] - kn5)
            for row in part.to_dicts()
            if row["sound"] is not None and row["kind"] == "exact"
        ]
        lines.append("; ".join(filter(None, (said, losers(judged, kn5)))))
    return lines


def why(table: Table, row: Mapping[str, Any]) -> str:
    """One line: what makes the printed number differ from the sound one."""
    parts = []
    inputs = "inputs leak the future"
    if row["kind"] == "reconstruction":
        parts.append("a reconstruction, not a language model's loss")
        inputs = "inputs divided by their deviation, no leak where all has been read"
    if row["kind"] == "bound":
        parts.append("a bound")
    if row["model"] in LEAKING:
        parts.append(f"{inputs}{_worth(row, 'leaking')}")
    parts.append(f"gradients kept for an epoch{_worth(row, 'kept')}")
    if row["recipes"]:
        parts.append(f"the sound recipe also has {row['recipes']}")
    if row["published"] is not None and row["sound"] is not None:
        together = "all" if row["recipes"] else "both"
        parts.append(f"{together} together {number(row['published'] - row['sound'], '+.3f')}")
    note = NOTES.get((table.name, row["row"]))
    return "; ".join([*parts, *([note] if note else []), *_setting(table, row)])


def _worth(row: Mapping[str, Any], way: str) -> str:
    if row[way] is None or row["sound"] is None:
        return ""
    return f" ({number(row[way] - row['sound'], '+.3f')})"


def _setting(table: Table, row: Mapping[str, Any]) -> list[str]:
    """Where our run is set otherwise than the printed one."""
    if not row["config"]:
        return []
    config = json.loads(row["config"])
    model, parts = config["model"], []
    emission = model.get("emission", {})
    ours = {"E": model["width"], "K": emission.get("components"), "V": config["vocab"]}
    theirs = {"E": table.E, "K": table.K, "V": table.vocab}
    theirs |= {
        s.split("=")[0]: int(s.split("=")[1]) for s in row["row"].split() if s[:2] in ("E=", "K=")
    }
    corpus = config["corpus"]
    if corpus["name"] not in table.corpora:
        parts.append(f"ours on {corpus['name']}")
    parts += [
        f"ours has {k}={corpus[k]}, not {v}" for k, v in DATA.items() if corpus.get(k, v) != v
    ]
    parts += [
        f"ours has {name}={ours[name]:,}, not {theirs[name]:,}"
        for name in ("E", "K", "V")
        if ours[name] is not None and theirs[name] is not None and ours[name] != theirs[name]
    ]
    epochs = {row[f"{way}_epoch"] for way in WAYS} - {None, 20}
    if epochs:
        unit = "epoch" if epochs == {1} else "epochs"
        parts.append(f"ours after {', '.join(map(str, sorted(epochs)))} {unit}")
    return parts


def _numbers(table: Table, frame: pl.DataFrame) -> Sheet:
    rows = frame.to_dicts()
    columns = {
        "row": [row["row"] for row in rows],
        "score": [row["kind"] for row in rows],
        "printed E20": [number(row["e20"], "g") for row in rows],
        "printed E30": [number(row["e30"], "g") for row in rows],
        "as published": [_cell(row, "published") for row in rows],
        **{way: [_cell(row, way) for row in rows] for way in WAYS[1:]},
    }
    kept = {
        name: cells
        for name, cells in columns.items()
        if name not in SOME or set(cells) != {NOT_RUN}
    }
    body = list(zip(*kept.values(), strict=True))
    return Sheet(f"{table.name}: {table.title}", tuple(kept), body, frozenset({"row", "score"}))


def _reasons(table: Table, frame: pl.DataFrame) -> Sheet:
    body = [(row["row"], why(table, row)) for row in frame.to_dicts()]
    return Sheet("why they differ", ("row", "why"), body, frozenset({"row", "why"}))


def _cell(row: Mapping[str, Any], way: str) -> str:
    if not row[f"{way}_seeds"]:
        return NOT_RUN
    diverged = row[f"{way}_diverged"]
    lost = f", {diverged} diverged" if diverged else ""
    if row[way] is None:
        return f"—{lost}"
    half = row[f"{way}_half"]
    return number(row[way], ".3f") + ("" if half is None else f" ±{half:.3f}") + lost


def _column(frame: pl.DataFrame, name: str) -> Any:
    return frame[name].cast(pl.Float64).fill_null(float("nan")).to_numpy()


def _tau(found: Agreement) -> str:
    if found.tau != found.tau:
        return f"not defined ({found.rows} rows)"
    span = "" if found.low != found.low else f" [{found.low:+.2f}, {found.high:+.2f}]"
    return f"{found.tau:+.2f}{span} over {found.rows} rows".replace("-", "−")
