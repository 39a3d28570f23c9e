"""Resolves a study: its points with their configs and ids, its data, the folder of its store.

Two points with equal configs are the same function. They become one point with an alias, which is
trained once.

Settings for all points that change what the points are about are refused. The option `--points`
has labels as the study writes them, or with the names of cuts.

A study on a text gets two more points, baselines of counts, which train in about a second. A neural
model that does not beat the 5-gram has learned less than a table of counts, and no entropy floor
says so. Tasks have none: their answers follow from rules, and their measure is the accuracy.

The store has a folder for each study and corpus:

    gru_ablation-captions                    a corpus without a file of its own
    gru_ablation-text-my_sentences-3f9a1c    text:data/my_sentences.txt

The last part is a hash of the content. So the same text has one folder, whatever its path is and
however that is written, and an edited text has another one.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from lmzoo import zoo
from lmzoo.base.command_line import nest_settings
from lmzoo.base.config import to_dict
from lmzoo.base.errors import UserError, near
from lmzoo.base.plain import FieldsDict
from lmzoo.contract import Score
from lmzoo.data import corpus as corpora
from lmzoo.data.blocks import Blocks
from lmzoo.data.corpus import Corpus, describe_data, parse_spec
from lmzoo.lab.store.labels import display_label, short_names
from lmzoo.lab.study.study import Point, Settings, Study
from lmzoo.lab.study.trainable import Config, Trainable
from lmzoo.trainables.program_points import resolve_program
from lmzoo.trainables.rows import fields_of, of_rows, resolve_row


@dataclass(frozen=True)
class Data:
    """The corpus of a study; None if no point trains a row of the zoo."""

    fields: FieldsDict | None
    """Its config."""
    corpus: Corpus | None
    lines: list[str]
    """What reading a text of the user gave and lost."""

    @property
    def source(self) -> str:
        """What the data are, in a line."""
        if self.corpus is None:
            return "data: those of the functions and commands"
        return f"{self.corpus.name}: {self.corpus.source}"


def open_data(study: Study, data_dir: Path | None = None) -> Data:
    """Open the corpus of a study, if one of its points trains a row of the zoo."""
    if not any(point.is_row for point in study.points):
        return Data(None, None, [])
    fields = corpus_config(study, study.fields)
    corpus = corpora.open_corpus(fields, data_dir)
    return Data(fields, corpus, describe_data(corpus))


def corpus_config(study: Study, data_fields: Settings) -> FieldsDict:
    """Return the config of the study's corpus."""
    fields = nest_settings(of_rows(study, data_fields), "corpus")
    return corpora.corpus_config(study.corpus, fields)


def resolve(
    study: Study,
    corpus: Corpus | None,
    corpus_fields: Config | None,
    needed: Collection[str] | None = None,
) -> list[Trainable]:
    """Return the study's points, in its order and with equal points merged, and the baselines.

    A point whose label is not in `needed` is left out if it does not accept the fields that the
    study sets for all points; None needs all points.
    """
    study.check()
    if study.parameters and "model.width" in study.fields:
        raise UserError(
            f"model.width={study.fields['model.width']} contradicts the budget of "
            f"{study.parameters:,} parameters, which sets the widths; add --parameters 0"
        )
    points: dict[str, Trainable] = {}
    asked: dict[str, Point] = {}
    refusal: UserError | None = None
    for point in study.points:
        try:
            resolved = _resolve(study, point, corpus, corpus_fields)
        except UserError as error:
            # Kept, because a point that nobody asks for may be wrong.
            refusal = UserError(f"point {point.label!r}: {error}")
            if needed is None or point.label in needed:
                raise refusal from None
            continue
        if resolved.id in points:
            # Equal, because what distinguishes them is searched?
            _check_equal(asked[resolved.id], point, resolved.search_space)
            points[resolved.id].aliases.append(point.label)
        else:
            points[resolved.id] = resolved
            asked[resolved.id] = point
    if refusal and not points:
        raise refusal
    labels = {label for point in points.values() for label in point.labels}
    for point in baselines(study.points, corpus):
        resolved = _resolve(study, point, corpus, corpus_fields)
        same = points.setdefault(resolved.id, resolved)
        same.baseline = same is resolved
        # A point that the study asks is compared, also if it equals a baseline.
        if needed is not None and same.labels.isdisjoint(needed):
            same.baseline = True
        # Two rows of a table must not have one name.
        if point.label in labels - same.labels:
            raise UserError(f"point {point.label!r} has the label of a baseline; give it another")
    return list(points.values())


def _check_equal(one: Point, other: Point, searched: Collection[str]):
    """Refuse two points that would differ if a field that they set were not searched."""
    for path in searched:
        field = path.removeprefix("model.")
        if one.fields.get(field) != other.fields.get(field):
            raise UserError(
                f"point {other.label!r} differs from {one.label!r} in {path} only, which is "
                "searched; take it out of the search, or give both points search={}"
            )


def _resolve(
    study: Study, point: Point, corpus: Corpus | None, corpus_fields: Config | None
) -> Trainable:
    if not point.is_row:
        return resolve_program(study, point, corpus, corpus_fields)
    assert corpus is not None
    assert corpus_fields is not None
    return resolve_row(study, point, corpus, corpus_fields)


BASELINES = (
    Point("unigram count", "ngram_count", {"order": 1}, search={}),
    Point("Kneser-Ney 5-gram", "ngram_count", {"order": 5}, search={}),
)
TEXT_BASELINES = BASELINES + (
    Point("bigram count", "ngram_count", {"order": 2, "stream": True}, search={}),
    Point("Kneser-Ney n-gram", "ngram_count", {"order": 0, "stream": True}, search={}),
)
"""Those of a contiguous text: the last one has the best order, and all of the past."""


def baselines(points: Sequence[Point], corpus: Corpus | None) -> tuple[Point, ...]:
    """Return the baselines; none on a task, or if no row of the study is an exact density."""
    is_exact = any(point.is_row and zoo.row(point.row).score == Score.EXACT for point in points)
    # A count model is an exact density: other scores are not compared with it.
    if not is_exact or corpus is None or corpus.test.is_task:
        return ()
    if isinstance(corpus.train, Blocks):
        return TEXT_BASELINES
    return BASELINES


def check_settings(study: Study, settings: Settings):
    """Refuse fields of `--set`, which apply to all points, that the points compare.

    A point sets such a field itself, or the rows of the points differ in it.
    """
    for path in settings:
        section, _, field = path.partition(".")
        if section == "model":
            setters = _setting_points(study.points, field)
        else:
            setters = [p.label for p in study.points if not p.is_row and path in p.fields]
        if setters:
            labels = ", ".join(repr(label) for label in setters[:MOST_NAMED])
            if len(setters) > MOST_NAMED:
                labels += ", ..."
            raise UserError(
                f"--set {path}: the study compares points that set it themselves ({labels}); "
                "drop the option, or write a study of your own"
            )


def _setting_points(points: Sequence[Point], field: str) -> list[str]:
    """Return the points that set a field of their models, or else those whose rows do."""
    rows = [point for point in points if point.is_row]
    setters = [
        point.label
        for point in rows
        if any(_inside(field, path) or _inside(path, field) for path in point.fields)
    ]
    if setters:
        return setters
    return _points_of_rows(rows, field)


def _points_of_rows(points: Sequence[Point], field: str) -> list[str]:
    """Return the points whose rows set the field, if the rows differ in it."""
    setting = set()
    values = []
    for name in dict.fromkeys(point.row for point in points):
        row = zoo.row(name)
        if row.model is not None:
            fields = dict(fields_of(to_dict(zoo.config(name))))
            values.append(fields.get(field))
        if any(_inside(path, field) for path, _ in fields_of(row.fields)):
            setting.add(name)
    # The rows agree, so the option changes all points alike.
    if all(value == values[0] for value in values):
        return []
    return [point.label for point in points if point.row in setting]


def _inside(path: str, other: str) -> bool:
    """Whether `path` is `other` or a field of it."""
    return f"{path}.".startswith(f"{other}.")


def select_labels(study: Study, corpus: Corpus | None, text: str) -> set[str]:
    """Return the labels in `LABEL,LABEL` and those of the baselines; all labels if it is empty.

    Labels with the names of cuts are known too, and the name or number of one cut. A label may
    contain commas: the longest known label is taken first. A `UserError` names labels that are near
    an unknown one.
    """
    selected = {point.label for point in baselines(study.points, corpus)}
    if not text.strip():
        return selected.union(point.label for point in study.points)
    # A later name counts more: the label of a point, then the label with cuts, then a short name.
    labels = {}
    shown = {_label_of_row(point): point.label for point in study.points}
    for long, label in shown.items():
        for short in short_names(long):
            # A short name with a comma would be read as two.
            if "," not in short:
                labels[short] = label
    labels |= shown
    for point in study.points:
        labels[point.label] = point.label
    for label in selected:
        labels[label] = label
    rest = text.split(",")
    while rest:
        # The longest label first: labels may have commas.
        length = len(rest)
        while ",".join(rest[:length]).strip() not in labels:
            length -= 1
            if not length:
                unknown = rest[0].strip()
                raise UserError(f"--points: no point {unknown!r}{near(unknown, labels)}")
        selected.add(labels[",".join(rest[:length]).strip()])
        rest = rest[length:]
    return selected


def _label_of_row(point: Point) -> str:
    """Return the label with the names of its cuts; the cell is the one of the point's row."""
    if not point.is_row:
        return point.label
    cell = None
    if zoo.row(point.row).model:
        cell = to_dict(zoo.config(point.row)).get("cell")
    return display_label(point.label, cell)


MOST_NAMED = 3
"""Points that a message names."""
SLUG = 24
"""Longest part of a file's name in the name of a folder."""
DIGEST = 6
"""Digits of the hash of a text there."""


def store_folder(
    storage: Path, study: str, corpus: str | Config | None, fingerprint: str = ""
) -> Path:
    """Return the folder of a study's store; no corpus: no point trains a row of the zoo.

    A folder of the same text counts, also if the file had another name.
    """
    if corpus is None:
        return storage / study
    corpus = parse_spec(corpus)
    digest = fingerprint[:DIGEST]
    kind = re.escape(f"{study}-{corpus['name']}")
    same = re.compile(rf"{kind}(-\w+)?-{digest}")
    # Only a text of the user can be found under another name.
    if corpus.get("path") and storage.is_dir():
        for folder in sorted(storage.iterdir()):
            if same.fullmatch(folder.name):
                return folder
    return storage / store_name(study, corpus, fingerprint)


def store_name(study: str, corpus: Config, fingerprint: str) -> str:
    """Return the name of the folder of a new store of a study."""
    name = f"{study}-{corpus['name']}"
    path = corpus.get("path")
    if not path:
        return name
    # Without `.txt.gz`, in letters that each shell and bucket takes.
    stem = Path(path).name.removesuffix(".gz").partition(".")[0]
    slug = re.sub(r"[^a-z0-9]+", "_", stem.lower()).strip("_")
    slug = slug[:SLUG].strip("_")
    return "-".join(part for part in (name, slug, fingerprint[:DIGEST]) if part)
