"""This process: its memory, its signals, its output."""
