"""Training: recipes, optimisers, the trainer, evaluation, checkpoints and runs on disk."""
