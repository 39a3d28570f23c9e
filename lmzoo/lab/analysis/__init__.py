"""Tables and figures of a study, computed from its records. Imports neither torch nor Ray."""
