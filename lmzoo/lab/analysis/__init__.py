"""Tables and figures of a study, computed from its records. Imports neither torch nor Ray.

In comes the folder of a study; out come polars frames, text and one HTML page.
Read `load.py` first, then `ranking.py`.
"""
