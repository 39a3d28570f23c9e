"""From run folders and record files to frames of runs and curves."""
