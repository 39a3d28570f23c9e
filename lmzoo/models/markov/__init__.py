"""Latent Markov models: a discrete latent stands between the last tokens and the next."""
