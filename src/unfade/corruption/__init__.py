"""How clean data became observations: simulate, log-density, condition."""
