"""Language models whose features are convolutions over earlier tokens."""
