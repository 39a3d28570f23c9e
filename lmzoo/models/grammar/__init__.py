"""Probabilistic grammars."""
