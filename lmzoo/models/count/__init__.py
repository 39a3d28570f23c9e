"""Models that count."""
