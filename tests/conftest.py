"""Shared data: small tables with holes, and one fitted recoverer a method."""

import numpy as np
import pytest
import torch

from unfade import Recoverer

torch.set_num_threads(1)


def small_table(samples: int = 120, features: int = 4, missing: float = 0.3, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(samples, 2)) @ rng.normal(size=(2, features)) + 0.3 * rng.normal(size=(samples, features))
    table = 10 * table + 100
    table[rng.random(table.shape) < missing] = np.nan
    return table


@pytest.fixture
def table() -> np.ndarray:
    return small_table()


@pytest.fixture(scope="session")
def fitted() -> Recoverer:
    return Recoverer(max_steps=100, n_candidates=20, random_state=0, verbose=0).fit(small_table())
