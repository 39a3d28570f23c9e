"""Experiments that train models and compare them outside of a study."""
