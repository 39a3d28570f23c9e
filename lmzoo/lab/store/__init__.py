"""Stores: folders and S3 buckets that hold runs, with atomic writes, appends and locks.

In come records and states; out come files that a reader finds whole, also after any death.
Read `local.py` first (every store has its interface), then `records.py`.
"""
