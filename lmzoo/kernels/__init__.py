"""Fast implementations of recurrences and reductions; each must equal a naive reference."""
