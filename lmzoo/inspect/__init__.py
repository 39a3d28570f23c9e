"""Inspect trained models: gates, states, attention, latents, boundaries, and plots of them.

In comes a trained model with a sentence or a corpus; out come frames of numbers and pictures.
Read `posterior.py` first.
"""
