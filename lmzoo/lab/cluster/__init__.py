"""Where a sweep trains: the connection to Ray, and its capacity."""
