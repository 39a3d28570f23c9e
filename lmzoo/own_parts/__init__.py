"""Parts in files of the user: importing them, and their source in a run."""
