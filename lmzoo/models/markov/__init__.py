"""Latent Markov models: the last tokens give a discrete latent, the latent gives the next token."""
