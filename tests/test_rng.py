import numpy as np
import torch

from unfade.rng import KeyedNormals, generator_normals


def test_keyed_normals_are_standard_normal():
    numbers = KeyedNormals(3, torch.arange(500))(20, 500, 33).flatten()
    assert abs(numbers.mean()) < 0.01
    assert abs(numbers.std() - 1) < 0.01
    assert abs((numbers.abs() < 1.96).float().mean() - 0.95) < 0.003
    assert abs(numbers.pow(4).mean() - 3) < 0.05


def test_keyed_normals_are_uncorrelated_across_rows_draws_and_positions():
    numbers = KeyedNormals(3, torch.arange(200))(50, 200, 10)
    for axis in range(3):
        moved = numbers.movedim(axis, 0).reshape(numbers.shape[axis], -1).numpy()
        correlation = np.corrcoef(moved[:10])
        assert np.abs(correlation - np.eye(len(correlation))).max() < 5 / moved.shape[1] ** 0.5


def test_keyed_normals_differ_by_seed_row_draw_and_stream():
    base = KeyedNormals(0, torch.arange(3))
    first, second = base(2, 3, 4), base(2, 3, 4)
    assert not torch.equal(first, second)
    assert not torch.equal(first, KeyedNormals(1, torch.arange(3))(2, 3, 4))
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[:, 0], first[:, 1])


def test_keyed_normals_hang_on_row_and_draw_alone():
    whole = KeyedNormals(0, torch.arange(10))(6, 10, 5)
    part = KeyedNormals(0, torch.tensor([7, 2]), first_draw=3)(3, 2, 5)
    assert torch.equal(part, whole[3:, [7, 2]])


def test_generator_normals_leave_the_global_state_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    generator_normals(torch.Generator().manual_seed(1))(4, 4)
    assert torch.equal(torch.rand(3), expected)
