"""Count-based n-gram models."""
