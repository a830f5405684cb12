"""A fitted model: the fit, draws, held-out cells, the model file."""
