"""Fast forms of recurrences and reductions; the plain formula stays the reference of each."""
