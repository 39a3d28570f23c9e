"""Tables and figures from records: one per file, each runnable; neither torch nor ray loads."""
