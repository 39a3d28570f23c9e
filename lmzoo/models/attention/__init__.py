"""Attention language models: Transformer decoders, Star-Transformer and Set Transformer."""
