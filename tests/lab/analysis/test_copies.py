"""A run that a store has twice with other numbers is named, unless it was trained again."""

import shutil

import pytest

from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.store.archive import archive_runs
from lmzoo.lab.store.records import RECORDS, RunFolder

from .toy_study import change_lines

SAID = (
    "WARNING: in the store twice with other numbers, of which the last file counts: cut full, "
    "seed 1: 4 and 3"
)


@pytest.mark.parametrize("is_archived", [False, True])
@pytest.mark.parametrize(
    ("change", "again", "named"), [(1, False, True), (1e-9, False, False), (1, True, False)]
)
def test_a_copy_with_other_numbers_is_named(toy, change, again, named, is_archived):
    """Seed 1 is archived, and is there again with a loss that is larger by `change`."""
    run, other = toy.add_point("full", [3.0, 3.01])
    folder = RunFolder(toy.path / run)
    copy = shutil.copytree(folder.path, toy.path.parent / "copy")
    # The folders are gone, and one comes back.
    archive_runs(toy.path, [run, other])
    shutil.copytree(copy, folder.path)
    if again:
        folder.start_over(folder.config)
        shutil.copy(copy / RECORDS, folder.path)
    change_lines(folder.path / RECORDS, "test", token=3.0 + change)
    if is_archived:
        archive_runs(toy.path, [run])
    assert (SAID in study_ranking(toy.path).warnings) == named
    assert ("twice" in " ".join(study_ranking(toy.path).warnings)) == named
