"""Neural n-gram models: they predict from the embeddings of the last W tokens."""
