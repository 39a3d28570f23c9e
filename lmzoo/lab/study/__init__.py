"""What a sweep trains: studies, samplers, pruners, the planner, runs of programs; no Ray."""
