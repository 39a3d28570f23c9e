"""What a trained model believes: pure functions from a model to plain numbers, and pictures."""
