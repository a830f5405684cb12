"""Diagnostics: checks with and without the truth, baselines, outliers, the report."""
