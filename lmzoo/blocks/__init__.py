"""Parts that several families of models share: attention, positions, latents, mixtures.

In come token vectors (B, T, E); out come vectors, or the scores of a base class of models.
Read `feature_model.py` first: a model that maps a prefix to one vector per position.
"""
