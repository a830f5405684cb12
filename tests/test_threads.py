"""Small work has one thread, in the calling thread alone; the user's own number is respected, and results are the same."""

import os
import threading

import numpy as np
import pytest
import torch
from conftest import small_table

from unfade import Recoverer
from unfade.training import threads
from unfade.training.threads import SMALL, one_thread


@pytest.fixture
def two_threads(monkeypatch):
    """As on a machine of two cores whose user has chosen nothing."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_small_work_has_one_thread_and_the_number_comes_back(two_threads):
    with pytest.raises(ZeroDivisionError), one_thread(SMALL):
        assert torch.get_num_threads() == 1
        raise ZeroDivisionError
    assert torch.get_num_threads() == 2
    for many in (SMALL + 1, None):
        with one_thread(many):
            assert torch.get_num_threads() == 2


def test_the_users_own_number_is_left_alone(two_threads, monkeypatch):
    torch.set_num_threads(3)
    with one_thread(1):
        assert torch.get_num_threads() == 3
    torch.set_num_threads(2)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    with one_thread(1):
        assert torch.get_num_threads() == 2


def test_other_threads_keep_theirs(two_threads):
    """Whichever of two fits ends first: each thread has its own number."""
    inside, leave, seen = threading.Event(), threading.Event(), []

    def fit():
        with one_thread(1):
            inside.set()
            leave.wait(10)
            seen.append(torch.get_num_threads())
        seen.append(torch.get_num_threads())

    worker = threading.Thread(target=fit)
    worker.start()
    inside.wait(10)
    seen.append(torch.get_num_threads())
    with one_thread(1):
        leave.set()
        worker.join()
        seen.append(torch.get_num_threads())
    assert seen == [2, 1, 2, 1]
    assert torch.get_num_threads() == 2


def test_fitting_and_drawing_are_small_work(two_threads, monkeypatch):
    seen = []

    def watched(entries):
        seen.append(entries)
        return one_thread(entries)

    monkeypatch.setattr("unfade.inference.fit.one_thread", watched)
    monkeypatch.setattr("unfade.inference.fitted_model.one_thread", watched)
    table, used = small_table(60), []
    rec = Recoverer(max_steps=100, n_members=2, random_state=0, verbose=0)
    rec.fit(table, on_step=lambda _: used.append(torch.get_num_threads()) and None)
    rec.transform(table)
    rec.sample(table, 2)
    assert used == [1, 1, 1]  # two stretches of the model, one of its encoder
    assert seen == [64 * 2 * 4, 128 * 4, 128 * 4]
    images = np.random.default_rng(0).normal(size=(5, 8, 8))
    Recoverer(network="conv", max_steps=2, random_state=0, verbose=0).fit(images).transform(images)
    assert seen[3:] == [None, None]
    assert torch.get_num_threads() == 2


def test_draws_are_the_same_by_one_thread_and_by_two(two_threads, monkeypatch):
    table = small_table(200, 6)

    def results():
        rec = Recoverer(noise="learn-shared", max_steps=40, random_state=0, verbose=0).fit(table)
        return rec.sample(table, 3, n_candidates=100).values, rec.transform(table)

    by_one = results()
    monkeypatch.setattr(threads, "SMALL", 0)
    for found, expected in zip(results(), by_one, strict=True):
        assert np.array_equal(found, expected)
