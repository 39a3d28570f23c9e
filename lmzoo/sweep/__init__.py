"""The sweep engine: plans and trains the runs of a study; the only folder that uses Ray."""

from lmzoo.command_line import gc_disabled

with gc_disabled():
    from lmzoo.sweep.main import main as main
    from lmzoo.sweep.study import Point as Point
    from lmzoo.sweep.study import Study as Study
