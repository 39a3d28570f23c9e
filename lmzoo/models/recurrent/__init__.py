"""Recurrent language models: a cell, an emission, a normaliser, initial states."""
