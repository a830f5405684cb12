"""A fitted model: draws, held-out cells, the model file."""
