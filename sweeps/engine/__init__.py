"""The machinery under the studies; only this folder knows Ray and Optuna."""

from lmzoo.edge import importing

with importing():
    from sweeps.engine.main import main as main
    from sweeps.engine.study import Point as Point
    from sweeps.engine.study import Study as Study
