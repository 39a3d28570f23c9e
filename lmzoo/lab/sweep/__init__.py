"""The sweep engine: trains the runs of a study on Ray.

In come studies; out come records in their stores, and a ranking on the terminal.
Read `driver/execution.py` first, then `worker/worker.py`.
"""

import sys

from lmzoo.base.errors import UserError
from lmzoo.base.own_parts import importing
from lmzoo.lab.study.study import Study


def main(*studies: Study):
    """Run the command line of a study and exit; see `lmzoo/lab/sweep/command.py`.

    Of several studies, the first argument names the one to run. It does nothing while the study is
    imported.
    """
    if importing():
        return
    for study in studies:
        if not isinstance(study, Study):
            raise UserError(f"study is {study!r:.60}; give a lmzoo.Study")
    try:
        from lmzoo.lab.sweep.command import run_studies  # here, because it is slow to import
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        raise SystemExit(130) from None
    run_studies(studies)
