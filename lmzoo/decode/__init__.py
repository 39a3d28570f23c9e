"""Decoding: sequences out of any model, over `next_log_prob` alone."""
