"""Soft pointers to earlier tokens in place of a fixed window."""
