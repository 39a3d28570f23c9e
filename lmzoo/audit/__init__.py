"""Tests of whether a model is a normalised causal density."""
