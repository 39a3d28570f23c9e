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
    config = {"name": cell} if isinstance(cell, str) else cell or {}
    if (layer := LAYER.fullmatch(label)) and int(layer[2]) <= len(config.get("layers", ())):
        return layer[1] + display_label(layer[3], config["layers"][int(layer[2]) - 1])
    names = cut_names(config.get("name", ""))
    found = NUMBERS.fullmatch(label) or BRACES.fullmatch(label)
    if found is None or not names:
        return label
    numbers = [int(number) for number in re.split("[,;]", found["numbers"])]
    if max(numbers) >= len(names) or not _switched(config, found["before"]):
        return label
    return found["before"] + " + ".join(f"{names[number]} ({number})" for number in numbers)


def architecture(model: Fields) -> str:
    """Return the names of a model's stored config and of its cells: "recurrent_lm block gru"."""
    layers = model.get("layers")  # a list of layers, or the number of a decoder's
    parts = [model.get("cell") or model.get("inner"), *(layers if isinstance(layers, list) else ())]
    inside = [architecture(part) for part in parts if isinstance(part, Mapping)]
    return " ".join([model.get("name", ""), *inside])


def curves_name(config: Fields) -> str:
    """Return the name of a run in TensorBoard: `POINT · seed SEED · RUN` or `POINT · tune · RUN`.

    RUN is the start of its name.
    """
    label = file_name(display_label(config["point"]["label"], config["model"].get("cell")))
    if config["stage"] == "tune":
        return f"{label} · tune · {config['run'][:6]}"
    return f"{label} · seed {config['seed']} · {config['run'][:6]}"


LETTERS, BYTES = 80, 180
"""Of a label in a file name, which has 255 bytes: `curves_name` needs up to 70 of them."""


def file_name(label: str) -> str:
    """Return a label as the name of a file on any system, of at most so many letters and bytes."""
    text = re.sub(FORBIDDEN, "_", label.replace("/", "_")).lstrip(".").rstrip(". ") or "_"
    if re.fullmatch(RESERVED, text):
        text = f"_{text}"
    data = text.encode()
    if len(text) <= LETTERS and len(data) <= BYTES:
        return data.decode()
    start = text[: LETTERS - 1].encode()[: BYTES - len("…".encode())]
    return f"{start.decode(errors='ignore')}…"


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
        model = models.get(point["id"])
        cell = point.get("cell") if model is None else model.get("cell")
        cell = cell if isinstance(cell, str | Mapping) else None
        aliases = point.get("aliases", [])
        shown = {
            "label": printable(display_label(point["label"], cell)),
            "aliases": [printable(display_label(alias, cell)) for alias in aliases],
            "stored_labels": [point["label"], *aliases],
            "equations": equations_left((model or {}).get("cell"), reference, folders),
        }
        points.append({**point, **shown})
    return {**study, "points": points}


def find_point(points: Sequence[Fields], text: str) -> Fields:
    """Return the point of `named_points` with this label, alias, cut name or number; or raise."""
    wanted = _plain(text)
    for spellings in (_labels, _short_names):
        found = [point for point in points if wanted in map(_plain, spellings(point))]
        if len(found) == 1:
            return found[0]
        if found:
            listed = ", ".join(point["label"] for point in found)
            raise UserError(f"{text!r} names {len(found)} points: {listed}; give the whole label")
    raise UserError(f"no point {text!r}; known: {', '.join(point['label'] for point in points)}")


def short_names(label: str) -> set[str]:
    """Return "6,7", "carry,write", "cut 6,7" and more for "cut carry (6) + write (7)"."""
    switches = re.findall(r"(?:^| )([\w=]+) \((\d+)\)", label)
    if not switches:
        return {label.removeprefix("cut ")}
    names, numbers = (",".join(column) for column in zip(*switches, strict=True))
    return {names, numbers, f"cut {names}", f"cut {numbers}", label.removeprefix("cut ")}


def _switched(config: Fields, before: str) -> bool:
    """Return whether the cell has a switch on; without this, "mgu 4" may be a width."""
    if before == "cut ":
        return True
    options = {name: config.get(name, default) for name, default in DEFAULTS.items()}
    return bool(config.get("cuts")) or options != DEFAULTS


def _labels(point: Fields) -> Iterable[str]:
    stored = point.get("stored_labels", ())
    return (point["label"], *point.get("aliases", ()), *stored, point["id"])


def _short_names(point: Fields) -> Iterable[str]:
    labels = (point["label"], *point.get("aliases", ()))
    return (name for label in labels for name in short_names(label))


def _plain(text: str) -> str:
    """Return a spelling without the differences that people do not mean."""
    return re.sub(r"\s*([,;+])\s*", r"\1", text.strip().lower())
