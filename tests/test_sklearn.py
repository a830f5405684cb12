"""scikit-learn's own contract."""

import warnings

from sklearn.utils.estimator_checks import parametrize_with_checks

from unfade import Recoverer
from unfade.errors import DataNotice


@parametrize_with_checks([Recoverer(max_steps=5, refine=10, verbose=0, random_state=0)])
def test_sklearn_contract(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataNotice)
        check(estimator)
