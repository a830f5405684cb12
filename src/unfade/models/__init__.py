"""Posteriors and priors and their networks. Knows no training."""
