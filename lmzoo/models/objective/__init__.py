"""Models that are about what training raises, not about what they compute."""
