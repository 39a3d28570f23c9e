"""The driver: the process that decides, on Ray."""
