"""Grammars: sentences through their trees."""
