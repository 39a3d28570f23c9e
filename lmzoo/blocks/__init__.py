"""Neural network parts that several model families share."""
