"""Analyses of draws: Rubin's rules and tests, other models fitted on draws, values missing not at random."""

from unfade.downstream.pooling import Pooled, fit_pooled, pool, pool_predictions, tipping_points
from unfade.downstream.propagation import Predictions, cross_propagate, propagate
from unfade.downstream.wald import PooledTest, d1, d2, d3

__all__ = [
    "Pooled",
    "PooledTest",
    "Predictions",
    "cross_propagate",
    "d1",
    "d2",
    "d3",
    "fit_pooled",
    "pool",
    "pool_predictions",
    "propagate",
    "tipping_points",
]
