"""Published tables and our runs of their rows."""
