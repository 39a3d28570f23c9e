"""Tables: pure functions from records to frames."""
