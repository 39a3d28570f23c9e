"""Models with another training objective than the likelihood."""
