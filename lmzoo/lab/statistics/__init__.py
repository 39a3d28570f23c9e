"""Statistics on plain arrays, for decisions of a sweep and for tables.

In come losses by point and seed; out come differences, intervals and verdicts. No files.
Read `compared.py` first.
"""
