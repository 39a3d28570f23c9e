"""n-gram models: the context is a window of the last W tokens, seen as vectors."""
