"""The open door: verdicts on results, commands and candidates that lmzoo did not train.

In come files, trackers or commands; out come the verdicts and the account of the laboratory.
Read `sources.py` first, then `verdicts.py`.
"""
