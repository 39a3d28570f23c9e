"""`lmzoo gates`: statistics of the gates, states and attention of a row or a trained run."""

import json

from rich.console import Console

from lmzoo.base.streams import echo
from lmzoo.cli.common import DataDir, ModelSettings
from lmzoo.cli.subject import CorpusName, RunOrRow, Seed, open_subject
from lmzoo.inspect.history import Series, gate_events, series
from lmzoo.inspect.summary import Summary, equal_length_sequences, summarise_activity
from lmzoo.inspect.summary import as_json as summary_as_json
from lmzoo.lab.cli.options import AsJson, new_table
from lmzoo.lab.cli.run_names import Runs, warn_untrained
from lmzoo.lab.store.records import RunFolder
from lmzoo.lab.store.studies import RUNS

TABLE_EPOCHS = 6
"""Number of epochs in the table, with the first and the last; `--json` has all."""


def show_gates(
    name: RunOrRow,
    corpus: CorpusName = "captions",
    data_dir: DataDir = None,
    fields: ModelSettings = None,
    seed: Seed = 0,
    runs: Runs = RUNS,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Show statistics of gates (mean, spread, saturated), state norms, and attention entropies.

    For a run that was trained with --gates, show them by epoch too. A row with --set is not trained.
    """
    model, data, found, _ = open_subject(name, corpus, data_dir, fields, seed, runs)
    events = [] if found is None else gate_events(RunFolder(found).records())
    summary = summarise_activity(model, equal_length_sequences(data), name)
    warn_untrained([] if found else [name])
    if as_json:
        epochs = [
            {key: value for key, value in event.items() if key != "event"} for event in events
        ]
        echo(json.dumps({**summary_as_json(summary), "epochs": epochs}))
        return
    _print(summary)
    if events:
        _print_epochs(series(events), [event["epoch"] for event in events])


def _print(summary: Summary) -> None:
    gates = [
        (g.cell, g.name, f"{g.mean:.3f}", f"{g.spread:.3f}", f"{g.saturated:.1%}")
        for g in summary["gates"]
    ]
    states = [
        (state.cell, str(number), *(f"{norms[i]:.3g}" for i in (0, len(norms) // 2, -1)))
        for state in summary["states"]
        for number, norms in enumerate(state.norms, 1)
    ]
    heads = [
        (h.layer, str(h.head + 1), f"{h.entropy:.3f}", f"{h.widest:.3f}", f"{h.query_norm:.3f}", f"{h.key_norm:.3f}")
        for h in summary["heads"]
    ]  # fmt: skip
    console = Console(highlight=False)
    for name, headings, rows in (
        ("cell", ("gate", "mean", "spread", "saturated"), gates),
        ("cell", ("state", "norm at first step", "middle step", "last step"), states),
        ("attention", ("head", "entropy", "maximal entropy", "‖q‖", "‖k‖"), heads),
    ):
        if rows:
            table = new_table(name, headings[0], right=headings[1:])
            for row in rows:
                table.add_row(*row)
            console.print(table)
    if heads:
        edges, visible = (
            sum(getattr(e, key) for e in summary["edges"]) for key in ("edges", "seen")
        )
        text = (
            f"{edges:,} edges per sequence (heads × queries × memory), {visible:,} of them visible"
        )
        console.print(text, style="dim")


def _print_epochs(every_series: list[Series], epochs: list[int]) -> None:
    last = len(epochs) - 1
    shown = sorted({round(i * last / (TABLE_EPOCHS - 1)) for i in range(TABLE_EPOCHS)})
    table = new_table("module", "at epoch", right=("", *(str(epochs[i]) for i in shown)))
    for line in every_series:
        values = [line.values[i] for i in shown]
        cells = ["—" if value is None else f"{value:.3f}" for value in values]
        table.add_row(line.module, line.part, line.statistic, *cells)
    Console().print(table)
