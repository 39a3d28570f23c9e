"""The published tables of S0 next to our runs as text: numbers, reasons, agreement of the orders.

    python tools/published_table.py runs/* --table multi30k_word

The orders of the rows are compared by Kendall's τ within one kind of score.
"""

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from agreement import Agreement, kendall
from published_rows import LEAKING, TABLES, PublishedTable
from published_runs import PUBLISHED_EPOCH, VARIANTS, compare_with_published

from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.formatting import MISSING, format_number, join_labels
from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.ranking import (
    FIVE_GRAM_NAME,
    LOSES,
    ONE_SEED,
    UNDECIDED,
    WINS,
)
from lmzoo.lab.analysis.render import Report, TextTable, render

NOT_RUN = "not run"
OPTIONAL_VARIANTS = {
    "leaking": "leaking: only the inputs",
    "accumulated": "accumulated: only the gradients",
}
"""Variants whose column is left out if no row has such a run."""


def published_comparison(
    paths: Sequence[Path], *, table: str | None = None, any_corpus: bool = False
) -> Report:
    """Return the published tables next to the runs of these study folders.

    Args:
        paths: folders of studies.
        table: name of the only table to show; None for all.
        any_corpus: include runs on other corpora; only the order of their rows is comparable.

    Raises:
        UserError: A folder is not a study's, or a name is unknown.
    """
    names = [known.name for known in TABLES]
    if table is not None and table not in names:
        raise UserError(f"no published table {table!r}; known: {', '.join(names)}")
    studies = [load_study(path) for path in paths]
    compared = [
        (known, compare_with_published(known, studies, any_corpus=any_corpus))
        for known in TABLES
        if table in (None, known.name)
    ]
    return published_report(compared)


def published_report(compared: Sequence[tuple[PublishedTable, pl.DataFrame]]) -> Report:
    """Return the report of some published tables and their frames."""
    variants = [
        text
        for variant, text in OPTIONAL_VARIANTS.items()
        if any(frame[f"{variant}_seeds"].sum() for _, frame in compared)
    ]
    named = [frame.with_columns(table=pl.lit(table.name)) for table, frame in compared]
    return Report(
        heading=(
            "Published tables of source document S0 next to our runs: mean over sentences of the "
            "mean loss, nats per token",
            "published: after 20 and 30 epochs, one seed, held-out part; ours: validation at "
            "epoch 20 or the last epoch before it, means over seeds with 95 % intervals",
            "as published: inputs divided by their standard deviation over time, gradients "
            f"accumulated for an epoch; {'; '.join([*variants, 'sound: neither'])}",
        ),
        tables=tuple(
            text_table
            for table, frame in compared
            for text_table in (_losses(table, frame), _reasons(table, frame))
        ),
        legend=tuple(
            line
            for table, frame in compared
            for line in (*agreement_lines(table, frame), *ngram_lines(table, frame))
        ),
        frame=pl.concat(named, how="diagonal_relaxed"),
        json_columns=frozenset({"config"}),
    )


def agreement_lines(table: PublishedTable, frame: pl.DataFrame) -> list[str]:
    """Return one line per kind of score: Kendall's τ between the orders of the rows."""
    lines = []
    for (kind,), part in frame.group_by("kind", maintain_order=True):
        published = _column(part, "e20")
        pairs = [("published at epoch 30", kendall(published, _column(part, "e30")))]
        pairs += [
            (name, kendall(published, _column(part, variant)))
            for variant, name in zip(VARIANTS, ("ours as published", *VARIANTS[1:]), strict=True)
        ]
        known = [f"{name} {_tau(tau)}" for name, tau in pairs if tau.rows > 1]
        if known:
            lines.append(
                f"{table.name}, order of {kind} rows, published at epoch 20, τ with: "
                f"{'; '.join(known)}"
            )
    return lines


def outcome(difference: float, half: float | None) -> str:
    """Return the outcome of one comparison, from the difference and half its interval."""
    if half is None:
        return ONE_SEED
    if abs(difference) <= half:
        return UNDECIDED
    return LOSES if difference > 0 else WINS


def ngram_lines(table: PublishedTable, frame: pl.DataFrame) -> list[str]:
    """Return the losses of n-gram models on our data, and the sound rows not better than them."""
    lines = []
    names = {row.label: row.name for row in table.rows()}
    for (unigram, kn5), part in frame.drop_nulls("kn5").group_by(
        "unigram", "kn5", maintain_order=True
    ):
        text = f"{table.name}, n-gram models on the same data: {FIVE_GRAM_NAME} "
        text += format_number(kn5, ".3f")
        text += f", unigram {format_number(unigram, '.3f')}" if unigram is not None else ""
        outcomes = [
            (names[row["row"]], outcome(difference, row["sound_half"]), difference)
            for row in part.drop_nulls("sound").filter(kind="exact").to_dicts()
            for difference in [row["sound"] - kn5]
        ]
        lines.append("; ".join(filter(None, (text, outcome_line(outcomes, kn5)))))
    return lines


def outcome_line(
    outcomes: Iterable[tuple[str, str, float]], baseline: float, baseline_name: str = FIVE_GRAM_NAME
) -> str:
    """List the rows, (label, outcome, difference), that are not better than the baseline's loss."""
    rows = list(outcomes)
    groups = (
        (LOSES, "loses to {}"),
        (UNDECIDED, "no clear difference from {}"),
        (ONE_SEED, "above {}, with one seed"),
    )
    parts: list[str] = []
    for kind, text in groups:
        labels = [
            label
            for label, result, difference in rows
            if result == kind and (kind != ONE_SEED or difference > 0)
        ]
        if labels:
            name = "it" if parts else f"{baseline_name} ({format_number(baseline, '.3f')})"
            parts.append(f"{text.format(name)}: {join_labels(labels)}")
    return "; ".join(parts)


def _losses(table: PublishedTable, frame: pl.DataFrame) -> TextTable:
    rows = frame.to_dicts()
    columns = {
        "row": [row.name for row in table.rows()],
        "score": [row["kind"] for row in rows],
        "published E20": [format_number(row["e20"], "g") for row in rows],
        "published E30": [format_number(row["e30"], "g") for row in rows],
        "as published": [_cell(row, "published") for row in rows],
        **{variant: [_cell(row, variant) for row in rows] for variant in VARIANTS[1:]},
    }
    shown = {
        name: cells
        for name, cells in columns.items()
        if name not in OPTIONAL_VARIANTS or set(cells) != {NOT_RUN}
    }
    body = list(zip(*shown.values(), strict=True))
    return TextTable(
        f"{table.name}: {table.title}", tuple(shown), body, frozenset({"row", "score"})
    )


def _reasons(table: PublishedTable, frame: pl.DataFrame) -> TextTable:
    reasons = [explain_difference(table, row) for row in frame.to_dicts()]
    body = list(zip([row.name for row in table.rows()], reasons, strict=True))
    return TextTable("why they differ", ("row", "why"), body, frozenset({"row", "why"}))


def _cell(row: Mapping[str, Any], variant: str) -> str:
    if not row[f"{variant}_seeds"]:
        return NOT_RUN
    count, half = row[f"{variant}_diverged"], row[f"{variant}_half"]
    diverged = f", {count} diverged" if count else ""
    interval = "" if half is None else f" ±{half:.3f}"
    if row[variant] is None:
        return f"{MISSING}{diverged}"
    return format_number(row[variant], ".3f") + interval + diverged


def _column(frame: pl.DataFrame, name: str) -> Any:
    return frame[name].cast(pl.Float64).fill_null(float("nan")).to_numpy()


def _tau(agreement: Agreement) -> str:
    if agreement.tau != agreement.tau:
        return f"not defined ({agreement.rows} rows)"
    span = (
        "" if agreement.low != agreement.low else f" [{agreement.low:+.2f}, {agreement.high:+.2f}]"
    )
    return f"{agreement.tau:+.2f}{span} over {agreement.rows} rows".replace("-", "−")


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


def main() -> None:
    """Print the published tables next to the runs of some studies."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("studies", nargs="*", type=Path)
    parser.add_argument("--table", help="Name of the only table to show.")
    parser.add_argument("--any-corpus", action="store_true", help="Include runs on other data.")
    options = parser.parse_args()
    report = published_comparison(
        options.studies, table=options.table, any_corpus=options.any_corpus
    )
    print(render(report, "table", width=120))  # noqa: T201


if __name__ == "__main__":
    main()
