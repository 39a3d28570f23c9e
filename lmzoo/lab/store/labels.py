"""Labels of points as people read them: "cut 4" is shown as "cut state_to_candidate (4)".

Studies write points with the numbers of switches, and files keep these labels. The names are those
of the table in the cell's docstring. The module imports neither torch nor a cell, so that tables of
stored records can use it.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from lmzoo.base.docstrings import cut_names, equations_left
from lmzoo.base.errors import UserError
from lmzoo.base.foreign import FORBIDDEN, RESERVED
from lmzoo.base.plain import Fields, FieldsDict
from lmzoo.base.streams import printable

NUMBERS = re.compile(r"(?P<before>(?:cut |mgu |mgru )?)(?P<numbers>\d+(?:,\d+)*)")
"""A label such as "cut 2,7", "mgru 4,6" or "4,6"."""
LAYER = re.compile(r"(layer ([1-9]\d*): )(.*)")
"""A label such as "layer 3: cut 7", of a stack of layers."""
BRACES = re.compile(r"(?P<before>\S+ )\{(?P<numbers>\d+(?:;\d+)*)\}")
"""A label such as "MGRU {4;6}"."""
DEFAULTS = {"squash": "tanh", "keep": False, "gate": "raw", "output": "raw", "carry": "state"}
"""Options of the MGRU before any switch."""
SCORE_KINDS = {
    "exact": "exact log-likelihood",
    "bound": "bound (at least the true loss, in expectation)",
    "reconstruction": "reconstruction (the scored sequence was also an input)",
    "conditional": "conditional on another sequence",
    "metric": "metric that functions and commands report",
}
"""Kind of score -> its words."""


def display_label(label: str, cell: Fields | str | None) -> str:
    """Return a point's label with the names of its switches: "cut carry (6) + write (7)".

    A label without the numbers of switches is returned as it is. `cell` is the stored config of the
    point's cell, or None; the name of the cell is enough for labels that start with "cut".
    """
    config = cell or {}
    if isinstance(config, str):
        config = {"name": config}
    # Each layer of a stack has a cell of its own.
    layer = LAYER.fullmatch(label)
    layers = config.get("layers", ())
    if layer and int(layer[2]) <= len(layers):
        return layer[1] + display_label(layer[3], layers[int(layer[2]) - 1])
    names = cut_names(config.get("name", ""))
    found = NUMBERS.fullmatch(label) or BRACES.fullmatch(label)
    if found is None or not names or not _switched(config, found["before"]):
        return label
    cuts = []
    for number in re.split("[,;]", found["numbers"]):
        # The number may be no cut, as of a width.
        if int(number) >= len(names):
            return label
        cuts.append(f"{names[int(number)]} ({int(number)})")
    return found["before"] + " + ".join(cuts)


def architecture(model: Fields) -> str:
    """Return the names of a model's stored config and of its cells: "recurrent_lm block gru"."""
    parts = [model.get("cell") or model.get("inner")]
    layers = model.get("layers")
    if isinstance(layers, list):  # not the number of a decoder's layers
        parts += layers
    inner = [architecture(part) for part in parts if isinstance(part, Mapping)]
    return " ".join([model.get("name", "")] + inner)


def curves_name(config: Fields) -> str:
    """Return the name of a run in TensorBoard: `POINT · seed SEED · RUN` or `POINT · tune · RUN`.

    RUN is the start of its name.
    """
    label = display_label(config["point"]["label"], config["model"].get("cell"))
    stage = "tune"
    if config["stage"] != stage:
        stage = f"seed {config['seed']}"
    return f"{file_name(label)} · {stage} · {config['run'][:6]}"


LETTERS = 80
BYTES = 180
"""Of a label in a file name, which has 255 bytes: `curves_name` needs up to 70 of them."""


def file_name(label: str) -> str:
    """Return a label as the name of a file on any system, of at most so many letters and bytes."""
    # A label is any text, and a store may move to another system.
    text = re.sub(FORBIDDEN, "_", label.replace("/", "_")).lstrip(".").rstrip(". ") or "_"
    if re.fullmatch(RESERVED, text):
        text = f"_{text}"
    # A letter of another script has several bytes, and a name has limits of both.
    data = text.encode()
    if len(text) <= LETTERS and len(data) <= BYTES:
        return data.decode()
    start = text[: LETTERS - 1].encode()[: BYTES - len("…".encode())]
    return f"{start.decode(errors='ignore')}…"  # the cut may be within a character


def named_points(
    study: Fields,
    models: Mapping[str, Fields],
    folders: Collection[Path] = (),
) -> FieldsDict:
    """Return the content of `study.json` with labels, aliases and equations for people.

    Each point keeps its label and aliases of the file as `stored_labels`. Its `equations` say what
    it changes in those of the reference. `models` has the config of the model by point id, for
    points that have a run; `folders` have the source files of cells outside the package.
    """
    points = []
    reference = models.get(study.get("reference", ""), {}).get("cell")
    for point in study["points"]:
        # A point without a run has the name of its cell only.
        cell = models.get(point["id"], point).get("cell")
        if not isinstance(cell, str | Mapping):
            cell = None
        stored = [point["label"]] + point.get("aliases", [])
        # A name that a stranger wrote must not reach a terminal as an escape.
        labels = [printable(display_label(label, cell)) for label in stored]
        own = models.get(point["id"], {}).get("cell")
        shown = {
            "label": labels[0],
            "aliases": labels[1:],
            "stored_labels": stored,
            "equations": equations_left(own, reference, folders),
        }
        points.append(point | shown)
    return {**study, "points": points}


def find_point(points: Sequence[Fields], text: str) -> Fields:
    """Return the point of `named_points` with this label, alias, cut name or number; or raise."""
    wanted = _plain(text)
    for spellings in (_labels, _short_names):  # a whole label counts first
        found = [point for point in points if wanted in map(_plain, spellings(point))]
        if len(found) == 1:
            return found[0]
        if found:
            names = _listed(found)
            raise UserError(f"{text!r} names {len(found)} points: {names}; give the whole label")
    raise UserError(f"no point {text!r}; known: {_listed(points)}")


def _listed(points: Iterable[Fields]) -> str:
    return ", ".join(point["label"] for point in points)


def short_names(label: str) -> set[str]:
    """Return "6,7", "carry,write", "cut 6,7" and more for "cut carry (6) + write (7)"."""
    found = {label.removeprefix("cut ")}
    switches = re.findall(r"(?:^| )([\w=]+) \((\d+)\)", label)
    if switches:
        for column in zip(*switches, strict=True):
            listed = ",".join(column)
            found |= {listed, f"cut {listed}"}
    return found


def _switched(config: Fields, before: str) -> bool:
    """Return whether the cell has a switch on; without this, "mgu 4" may be a width."""
    if before == "cut ":
        return True
    options = {name: config.get(name, default) for name, default in DEFAULTS.items()}
    if config.get("cuts"):
        return True
    return options != DEFAULTS


def _labels(point: Fields) -> list[str]:
    shown = [point["label"]] + point["aliases"]
    return shown + point["stored_labels"] + [point["id"]]


def _short_names(point: Fields) -> set[str]:
    shown = [point["label"]] + point["aliases"]
    return set[str]().union(*map(short_names, shown))


def _plain(text: str) -> str:
    """Return a spelling without the differences that people do not mean."""
    return re.sub(r"\s*([,;+])\s*", r"\1", text.strip().lower())
