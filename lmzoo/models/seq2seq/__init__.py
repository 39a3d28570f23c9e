"""Sequence-to-sequence models: recurrent, with and without attention, and Transformers."""
