"""Where a sweep trains: the connection to Ray, its capacity, and jobs on a cluster."""
