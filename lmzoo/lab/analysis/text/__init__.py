"""Frames as text: numbers, tables, verdict lines."""
