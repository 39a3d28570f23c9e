"""Published tables beside our runs."""
