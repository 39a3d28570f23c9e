"""Slot models: n-gram models whose context positions are soft pointers to earlier tokens."""
