"""What the study machine gets from the zoo; see `lmzoo/lab/study/trainable.py`."""

from lmzoo import zoo
from lmzoo.trainables.resolve import check_settings, open_data, resolve, select_labels, store_folder
from lmzoo.trainables.rows import check_points
from lmzoo.trainables.trainer import Shapes, is_counted, make_trainer

make_shapes = Shapes


def row_name(name: str) -> str:
    """Return the whole name of a row of the zoo."""
    return zoo.row(name).name


__all__ = [
    "check_points",
    "check_settings",
    "is_counted",
    "make_shapes",
    "make_trainer",
    "open_data",
    "resolve",
    "row_name",
    "select_labels",
    "store_folder",
]
