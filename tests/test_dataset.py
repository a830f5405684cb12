import numpy as np
import pandas as pd
import torch

from unfade import Recoverer
from unfade.data.dataset import read
from unfade.data.encoder import FeatureEncoder

COLUMNS = ["height", "group", "note"]


def frame(rows=60):
    rng = np.random.default_rng(0)
    made = pd.DataFrame({"height": rng.normal(size=rows), "group": rng.choice(["x", "y"], rows)})
    made["note"] = [f"remark {i}" for i in range(rows)]
    return made


def test_a_table_is_complete_if_no_cell_is_missing_or_known_to_an_interval_only():
    given = frame()
    assert read(given).complete
    for column in COLUMNS:
        holed = given.copy()
        holed.loc[3, column] = None
        assert not read(holed).complete, column
    assert not read(given, detection_limits={"height": ("<", 0.0)}).complete
    assert not read(given, missing=["x"]).complete
    assert not read(np.array([[1.0, np.nan]])).complete
    assert read(np.array([[1.0, 2.0]])).complete


def test_rows_are_encoded_once_for_one_encoder(monkeypatch):
    given = frame()
    given.loc[::4, "height"] = np.nan
    data = read(given)
    encoder = Recoverer(max_steps=1, n_members=1, verbose=0).plan(given).encoder
    entered = data.features(encoder)
    calls = []
    monkeypatch.setattr(FeatureEncoder, "enter", lambda self, obs: calls.append(len(obs)) or obs)
    assert data.features(encoder) is entered
    assert torch.equal(data.some_features(encoder, slice(5, 9)).values, entered.values[5:9])
    assert torch.equal(data.rows(np.array([7, 2])).features(encoder).values, entered.values[[7, 2]])
    assert not calls
    data.features(Recoverer(max_steps=1, n_members=1, verbose=0).plan(given).encoder)
    assert calls == [60]


def test_rows_come_with_their_frame():
    given = frame()
    part = read(given).rows(np.array([8, 1]))
    assert part.given().equals(given.iloc[[8, 1]])
    assert np.array_equal(part.table(), read(given).table()[[8, 1]], equal_nan=True)


def test_cells_are_hidden_in_the_callers_order_of_columns():
    given = frame()
    model = Recoverer(max_steps=1, n_members=1, verbose=0, random_state=0).fit(
        given.assign(height=given.height.mask(given.index < 9))
    )
    data = model.model_.read(given[["note", "group", "height"]])
    hidden = np.zeros((60, 3), dtype=bool)
    hidden[4, 2] = True
    seen = data.hide(hidden).observed
    assert not seen[4, 0]
    assert torch.equal(seen[5], data.obs.observed[5])
    assert int((data.obs.observed & ~seen).sum()) == 1
