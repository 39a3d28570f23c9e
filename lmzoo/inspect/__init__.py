"""Inspect trained models: gates, states, attention, latents, boundaries, and plots of them."""
