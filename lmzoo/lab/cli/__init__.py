"""Commands of the study machine."""
