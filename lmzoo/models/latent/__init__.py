"""Models that code a whole sentence as one vector, as a bound or as a reconstruction."""
