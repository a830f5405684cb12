import numpy as np
import pytest
import torch

from unfade.data.encoder import FeatureEncoder
from unfade.data.observations import SCALINGS, Observations, Scaling, as_observations
from unfade.errors import InvalidData


def test_nan_becomes_mask():
    obs = as_observations(np.array([[1.0, np.nan], [np.nan, 4.0]]))
    assert obs.observed.tolist() == [[True, False], [False, True]]
    assert obs.values.tolist() == [[1.0, 0.0], [0.0, 4.0]]


@pytest.mark.parametrize("data", [[[1, 2], [3, None]], torch.tensor([[1.0, 2.0], [3.0, float("nan")]])])
def test_lists_and_tensors_come_in(data):
    assert as_observations(data).observed.tolist() == [[True, True], [True, False]]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.array([[1.0, np.inf]]), "infinity: column 1, row 0"),
        (np.array([["a", "b"]]), "Expected numbers"),
        (np.array([1.0, 2.0]), "Reshape your data"),
        (np.empty((0, 3)), "0 sample"),
        (np.empty((3, 0)), "0 feature"),
        (np.array([[1 + 1j]]), "Complex data"),
        ([[1.0, 2.0], [3.0]], "ragged"),
    ],
)
def test_bad_data_are_refused(data, message):
    with pytest.raises(InvalidData, match=message):
        as_observations(data)


def test_infinity_names_the_column():
    with pytest.raises(InvalidData, match="column 'b'"):
        as_observations([[1.0, float("-inf")]], names=["a", "b"])


@pytest.mark.parametrize("kind", [*SCALINGS, None])
def test_scaling_goes_there_and_back(kind):
    data = np.random.default_rng(0).normal(5, 3, (50, 3)) * [1, 10, 100]
    data[::3, 1] = np.nan
    obs = as_observations(data)
    scaling = Scaling.fit(obs, kind)
    back = scaling.undo(scaling.apply(obs).values)
    assert torch.allclose(back[obs.observed], obs.values[obs.observed], rtol=1e-5)


def test_scaling_reads_observed_entries_only():
    values = torch.tensor([[0.0], [10.0], [999.0]], dtype=torch.float64)
    obs = Observations(values, torch.tensor([[True], [True], [False]]))
    assert Scaling.fit(obs, "variance").centre.item() == 5
    assert Scaling.fit(obs, "interval").scale.item() == 10


def test_large_offsets_survive_single_precision():
    data = 1e9 + np.random.default_rng(0).normal(size=(100, 2))
    space = FeatureEncoder.fit(as_observations(data), "variance")
    scaled = space.enter(as_observations(data))
    assert abs(scaled.values.std() - 1) < 0.01


def test_unknown_scaling_is_refused():
    with pytest.raises(InvalidData, match="scaling must be one of"):
        Scaling.fit(as_observations([[1.0]]), "wrong")


def test_model_space_keeps_exact_and_unmodelled_cells():
    data = np.array([[1.0, 7.0, np.nan, 3.0], [2.0, np.nan, np.nan, np.nan], [4.0, 7.0, np.nan, 5.0]])
    obs = as_observations(data)
    space = FeatureEncoder.fit(obs, "variance")
    assert space.modelled.tolist() == [True, False, False, True]
    out = space.leave(torch.zeros(3, 2), obs, torch.tensor([True, False]))
    assert out[:, 0].tolist() == [1.0, 2.0, 4.0]  # exact
    assert out[:, 1].tolist() == [7.0, 7.0, 7.0]  # constant
    assert out[:, 2].isnan().all()  # never seen
    assert out[:, 3].tolist() == [4.0, 4.0, 4.0]  # noisy: what the model says
