"""Who trains what: packs, assignments, time left. Pure decisions, no Ray."""
