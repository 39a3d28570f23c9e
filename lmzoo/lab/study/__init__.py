"""What a sweep trains: studies, samplers, pruners and the planner; no Ray."""
