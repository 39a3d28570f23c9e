"""What `lmzoo init` writes."""
