"""Programs of the user as things that a study can train."""
