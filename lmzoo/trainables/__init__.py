"""What a run can train: a row of the zoo, a Python function, a command."""
