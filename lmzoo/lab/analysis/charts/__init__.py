"""Charts of records."""
