"""Statistics on plain arrays, for decisions of a sweep and for tables."""
