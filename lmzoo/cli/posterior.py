"""`posterior`: what a trained run's latents were in a sentence, as numbers and pictures.

A discrete latent, the maps of attention and the boundaries of segments: whichever it has.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from torch import Tensor

from lmzoo.cli.sample import own_source
from lmzoo.contract import END, START, LanguageModel
from lmzoo.data.corpus import Corpus
from lmzoo.data.vocabulary import SPECIALS
from lmzoo.errors import UserError
from lmzoo.inspect.attention_maps import has_maps, maps
from lmzoo.inspect.boundaries import boundaries, has_boundaries
from lmzoo.inspect.posterior import as_json, largest, posterior, prior
from lmzoo.store.records import write_json
from lmzoo.train.trained import Trained, open_run

SHOWN = 20
"""Values of the latent in a picture; the file of numbers has all."""


@dataclass(frozen=True)
class Sentence:
    """What is shown, as ids and as text, and its source where the row is given one."""

    ids: list[int]
    tokens: list[str]
    text: str
    given: tuple[Tensor, ...]
    source: list[str]


def write_posterior(
    run: Annotated[Path, typer.Argument(help="A run's folder, as `train` prints it.")],
    sentences: Annotated[int, typer.Option(min=1, help="How many test sentences.")] = 4,
    text: Annotated[str | None, typer.Option(help="A sentence of your own instead.")] = None,
    source: Annotated[str | None, typer.Option(help="What it was made of, for rows that are given a source.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where to write.  [default: RUN/posterior]")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where the corpus's files lie.")] = None,
) -> None:  # fmt: skip
    """Show P(latent | sentence so far) and its prior, attention word by word, ends of segments."""
    trained = open_run(run, data_dir)
    model = trained.model
    require_shown(model)
    every = list(_asked(trained, sentences, text, source))
    folder = out or run / "posterior"
    folder.mkdir(parents=True, exist_ok=True)
    if model.latent:
        _write_latent(folder, trained, every)
    if has_maps(model):
        _write_maps(folder, trained, every)
    if has_boundaries(model):
        _write_boundaries(folder, trained, every)


def require_shown(model: LanguageModel) -> None:
    """Refuse a model in which there is nothing to show.

    Raises:
        UserError: it has no latent, no map and no boundary.
    """
    if not (model.latent or has_maps(model) or has_boundaries(model)):
        raise UserError(
            f"{model.name} has no discrete latent, attention map or boundary to show; rows that "
            "have one are mixtures, as DLM5, DLM30 or a recurrent row with "
            "model.emission=mixture, decoders, as gpt or seq2seq_dot_attention, and hm_lstm"
        )


def _write_latent(folder: Path, trained: Trained, every: list[Sentence]) -> None:
    # Drawing is loaded here: no other command should wait for it.
    from lmzoo.inspect.plots import posterior_picture, prior_picture, save_png

    model, where = trained.model, f"{trained.row} on {trained.corpus.name}"

    def show(one: Sentence) -> tuple[dict[str, Any], Any]:
        found = posterior(model, one.ids, one.tokens)
        title = f"{where}: P({model.latent} | tokens so far)"
        return as_json(found), posterior_picture(largest(found, SHOWN), title, one.text)

    told = _pictures(folder, "sentence", every, show)
    before = prior(model)
    if before is not None:
        path = folder / "prior.png"
        save_png(prior_picture(before, where, f"prior of the {model.latent}"), path)
        typer.echo(path)
    _summary(
        folder / "posterior.json", trained,
        latent=model.latent, sentences=told, prior=None if before is None else as_json(before),
    )  # fmt: skip


def _write_maps(folder: Path, trained: Trained, every: list[Sentence]) -> None:
    from lmzoo.inspect.plots_maps import maps_picture

    def show(one: Sentence) -> tuple[dict[str, Any], Any]:
        found = maps(trained.model, one.ids, one.tokens, one.given, one.source)
        title = f"{trained.row} on {trained.corpus.name}: what each token looked at"
        facts = {**asdict(found), "axes": ["layer", "head", *found.axes]}
        facts["weight"] = found.weight.tolist()
        return facts, maps_picture(found, title, one.text)

    told = _pictures(folder, "attention", every, show)
    _summary(folder / "attention.json", trained, sentences=told)


def _write_boundaries(folder: Path, trained: Trained, every: list[Sentence]) -> None:
    from lmzoo.inspect.plots_maps import boundaries_picture

    def show(one: Sentence) -> tuple[dict[str, Any], Any]:
        found = boundaries(trained.model, one.ids, one.tokens)
        title = f"{trained.row} on {trained.corpus.name}: where layers ended their segments"
        facts = {"axes": ["layer", "token"], **asdict(found), "ended": found.ended.int().tolist()}
        return facts, boundaries_picture(found, title, one.text)

    told = _pictures(folder, "boundaries", every, show)
    _summary(folder / "boundaries.json", trained, sentences=told)


def _pictures(
    folder: Path,
    stem: str,
    every: Iterable[Sentence],
    show: Callable[[Sentence], tuple[dict[str, Any], Any]],
) -> list[dict[str, Any]]:
    """Draw each sentence; what is told of each in the file of numbers."""
    from lmzoo.inspect.plots import save_png

    told = []
    for number, one in enumerate(every, 1):
        facts, picture = show(one)
        told.append({"sentence": one.text, **facts})
        path = folder / f"{stem}_{number}.png"
        save_png(picture, path)
        typer.echo(f"{path}  {one.text}")
    return told


def _summary(path: Path, trained: Trained, **facts: Any) -> None:
    whose = {"row": trained.row, "run": trained.config["run"], "corpus": trained.corpus.name}
    write_json(path, {**whose, **facts})
    typer.echo(path)


def _asked(
    trained: Trained, count: int, text: str | None, source: str | None
) -> Iterable[Sentence]:
    """The first sentences of the test split, or the user's own."""
    corpus, conditional = trained.corpus, trained.model.conditional
    own = own_source(trained, source) if source is not None else ()
    if conditional and (text is None) is not (source is None):
        raise UserError(f"{trained.row} is given a source: --text and --source go together")
    rows = test_rows(corpus, count) if text is None else [encoded(text, corpus)]
    for number, ids in enumerate(rows):
        given = own
        if conditional and not own:
            tokens, lengths = (column[number : number + 1] for column in corpus.test.given)
            given = (tokens[:, : int(lengths)], lengths)
        tokens = [corpus.vocabulary.tokens[i] for i in ids]
        said = corpus.vocabulary.decode(ids)
        if not given or corpus.source_vocabulary is None:
            yield Sentence(ids, tokens, said, (), [])
            continue
        read = given[0][0].tolist()
        said = f"{corpus.source_vocabulary.decode(read)}  →  {said}"
        yield Sentence(ids, tokens, said, given, [corpus.source_vocabulary.tokens[i] for i in read])


def test_rows(corpus: Corpus, count: int) -> list[list[int]]:
    """The first sentences of the test split, without pads."""
    part = corpus.test
    pairs = zip(part.tokens[:count].tolist(), part.lengths[:count].tolist(), strict=True)
    return [ids[:length] for ids, length in pairs]


def encoded(text: str, corpus: Corpus) -> list[int]:
    """The user's sentence as the corpus would encode it.

    Raises:
        UserError: it is empty, too long, or has a token that the corpus does not know.
    """
    vocabulary = corpus.vocabulary
    tokens = text.split() if vocabulary.joiner else list(text)
    unknown = [t for t in tokens if t not in vocabulary.ids or t in SPECIALS]
    if unknown:
        raise UserError(
            f"--text: corpus {corpus.name} does not know {', '.join(map(repr, unknown))}; "
            f"it knows {len(vocabulary) - len(SPECIALS)} others of the unit {corpus.unit}"
        )
    if not tokens:
        raise UserError("--text is empty; give a sentence, as in --text 'a man is sleeping'")
    end = [END] if bool((corpus.test.tokens == END).any()) else []
    ids = [START, *vocabulary.encode(tokens), *end]
    if len(ids) > corpus.task.length:
        raise UserError(
            f"--text has {len(tokens)} tokens; the run has places for "
            f"{corpus.task.length - 1 - len(end)}"
        )
    return ids
