"""Measurements that tell whether a model is the normalised causal density it claims to be."""
