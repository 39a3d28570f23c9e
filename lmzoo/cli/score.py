"""`lmzoo score`: how probable a trained run finds a text, token by token."""

import json
from typing import Annotated, Any, NamedTuple

import torch
import typer
from rich.console import Console
from torch import Tensor

from lmzoo.base.errors import UserError
from lmzoo.base.streams import echo
from lmzoo.cli.common import DataDir, open_run
from lmzoo.cli.sample import encode_source
from lmzoo.contract import UNKNOWN
from lmzoo.data.sequences import encode_sentence
from lmzoo.lab.cli.run_names import RUN_HELP, Runs, find_run
from lmzoo.lab.cli.tables import AsJson, new_table
from lmzoo.lab.store.labels import SCORE_KINDS
from lmzoo.lab.store.records import RUNS
from lmzoo.train.trained import TrainedRun


class ScoredText(NamedTuple):
    """A text and the log-probabilities of its tokens, in nats."""

    text: str
    tokens: list[str]
    """The scored tokens; a word outside the vocabulary is `<unk>`."""
    log_probs: list[float]
    unknown: list[str]
    """Tokens of the text that are not in the vocabulary."""

    @property
    def total(self) -> float:
        """log P of the text in nats."""
        return sum(self.log_probs)

    def as_json(self) -> dict[str, Any]:
        """Return the fields with total and mean."""
        # Texts of different lengths are compared by it.
        per_token = self.total / len(self.log_probs)
        return self._asdict() | {"total": self.total, "per_token": per_token}


def score(
    run: Annotated[str, typer.Argument(metavar="RUN_OR_ROW", help=f"{RUN_HELP}, or a row (its latest run).")],
    texts: Annotated[list[str], typer.Argument(metavar="TEXT...", help="Texts to score, each in quotes.")],
    source: Annotated[str | None, typer.Option(help="Source of the texts, for rows that read one.")] = None,
    runs: Runs = RUNS,
    data_dir: DataDir = None,
    as_json: AsJson = False,
):  # fmt: skip
    """Print log P of every token of a text and of the whole text, in nats, with the best weights of a run."""
    trained = open_run(find_run(run, runs), data_dir)
    # Before the first text is scored.
    if trained.model.conditional and source is None:
        raise UserError(f"{trained.row_name} reads a source; give it with --source TEXT")
    inputs = ()
    if source is not None:
        inputs = encode_source(trained, source)
    scored = [score_text(trained, text, inputs) for text in texts]
    if as_json:
        kind = trained.model.score.value
        content = [{"score": kind} | text.as_json() for text in scored]
        echo(json.dumps(content, indent=1))
        return
    console = Console()
    for text in scored:
        _print(console, text)
    line = f"score: {SCORE_KINDS.get(trained.model.score, trained.model.score)}"
    if trained.model.leaks:
        line += f"; {trained.row_name} {trained.model.leaks}"
    console.print(line)


@torch.no_grad()
def score_text(trained: TrainedRun, text: str, sources: tuple[Tensor, ...] = ()) -> ScoredText:
    """Return the log-probability of each scored token of a text; see `encode_sentence`."""
    vocabulary = trained.corpus.vocabulary
    tokens, lengths = encode_sentence(trained.corpus, text)
    scores = trained.model.log_prob(tokens, lengths, *sources)[0, 1 : int(lengths)]
    ids = tokens[0, 1 : int(lengths)].tolist()
    words = vocabulary.split(text)
    # The ids have `<end>` besides, if the corpus has it.
    unknown = [word for word, token in zip(words, ids, strict=False) if token == UNKNOWN]
    shown = [vocabulary.tokens[token] for token in ids]
    return ScoredText(text, shown, scores.double().tolist(), unknown)


def _print(console: Console, scored: ScoredText):
    table = new_table("token", right=("log P",))
    for token, value in zip(scored.tokens, scored.log_probs, strict=True):
        if token.isspace():
            token = repr(token)
        table.add_row(token, f"{value:.4f}")
    console.print(table)
    console.print(
        f"log P {scored.total:.4f} nats, {scored.total / len(scored.log_probs):.4f} per token",
        highlight=False,
    )
    if scored.unknown:
        console.print(f"not in the vocabulary: {', '.join(scored.unknown)}", highlight=False)
    console.print()
