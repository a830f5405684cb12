"""How far to trust a recovery: checks with and without the truth, baselines, outliers, the report."""
