"""The door between both houses: a row of the zoo, a Python function, a command.

In comes a point of a study; out come configs, an identity, and a training that reports metrics.
Read `door.py` first, then `rows.py` and `program_points.py`.
"""
