"""Models that encode a whole sentence as one vector: VAEs and autoencoders."""
