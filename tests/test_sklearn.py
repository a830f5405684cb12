"""scikit-learn's own contract."""

import re
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.utils.estimator_checks import parametrize_with_checks

from unfade import Recoverer
from unfade.errors import DataNotice


@parametrize_with_checks([Recoverer(max_steps=5, n_candidates=10, verbose=0, random_state=0)])
def test_sklearn_contract(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataNotice)
        check(estimator)


def test_the_pipeline_of_the_documentation_classifies_a_table_with_text():
    docs = (Path(__file__).parents[1] / "docs" / "tables.md").read_text()
    [code] = [block for block in re.findall(r"```python\n(.*?)```", docs, re.DOTALL) if "make_pipeline" in block]
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 80)
    frame = pd.DataFrame({"x": rng.normal(size=80), "town": np.where(y, "here", "there"), "old": rng.random(80) < 0.5})
    frame = frame.mask(rng.random(frame.shape) < 0.1)
    there = {"Recoverer": partial(Recoverer, max_steps=20, n_candidates=5, verbose=0), "frame": frame, "y": y}
    exec(code, there)
    assert there["predicted"].shape == (80,)
    assert (there["predicted"] == y).mean() > 0.9
