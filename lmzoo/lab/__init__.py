"""The study machine: it asks, plans, trains anything, judges and reports.

It knows trainables; it knows no language model and no torch.
"""
