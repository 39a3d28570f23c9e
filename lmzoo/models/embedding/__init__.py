"""Models that are about word vectors: one-hot, from windows, from context."""
