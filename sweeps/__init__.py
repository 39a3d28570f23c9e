"""One question per file; `engine` is what they share."""
