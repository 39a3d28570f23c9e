"""What a sweep trains: studies, samplers, pruners, the planner, runs of programs; no Ray.

In come a `Study` and the records of its store; out come the runs that are pending.
Read `study.py` first, then `planner.py`.
"""
