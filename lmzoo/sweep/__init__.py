"""The machinery under the studies; only this folder knows Ray and Optuna."""

from lmzoo.command_line import importing

with importing():
    from lmzoo.sweep.main import main as main
    from lmzoo.sweep.study import Point as Point
    from lmzoo.sweep.study import Study as Study
