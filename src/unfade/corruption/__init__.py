"""Corruptions p(y | x), how clean data became observations: simulation, log-density, conditioning."""
