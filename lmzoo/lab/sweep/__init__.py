"""The sweep engine: trains the runs of a study on Ray."""

from lmzoo.base.own_parts import importing
from lmzoo.lab.study.study import Study


def main(*studies: Study) -> None:
    """Run the command line of a study and exit; see `lmzoo/lab/sweep/command.py`.

    Of several studies, the first argument of the command line names the one to run. It does nothing
    while the study is imported, by a worker or by `lmzoo sweep`.
    """
    if importing():
        return
    from lmzoo.lab.sweep.command import run_studies  # here, because it is slow to import

    run_studies(studies)
