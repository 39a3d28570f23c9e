"""Attention language models: a Transformer decoder and its presets, star and set Transformers."""
