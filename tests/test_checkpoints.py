"""Training that stops at any moment and goes on ends as if it had not."""

import numpy as np
import pytest

from unfade import Recoverer, TrainingConfig, storage
from unfade.errors import DataNotice, InvalidFile
from unfade.training.checkpoints import Checkpoint


class Killed(Exception):
    """What ends a fit in these tests."""


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2)) @ rng.normal(size=(2, 5)) + 0.3 * rng.normal(size=(120, 5))
    return np.where(rng.random(X.shape) < 0.2, np.nan, X)


def recoverer(**options):
    config = TrainingConfig(steps=300, batch_size=32, check_every=20)
    return Recoverer(training=config, n_members=2, random_state=0, verbose=0, **options)


def stopped_after(checkpoint, table, calls, **options):
    left = calls

    def on_step(_):
        nonlocal left
        left -= 1
        if not left:
            raise Killed

    with pytest.raises(Killed):
        recoverer(**options).fit(table, on_step=on_step, checkpoint=checkpoint)


@pytest.mark.parametrize("options", [{}, {"noise": "learn-shared"}, {"settings": {"posterior": "bound"}}], ids=str)
def test_goes_on_to_the_same_result(table, tmp_path, options):
    heard = []
    undisturbed = recoverer(**options).fit(table, on_step=heard.append)
    expected = undisturbed.sample(table, 5).values
    for calls in (1, len(heard) // 2, len(heard) - 1, len(heard)):
        stopped_after(Checkpoint(tmp_path, every=0), table, calls, **options)
        rec = recoverer(**options).fit(table, checkpoint=Checkpoint(tmp_path, resume=True))
        assert np.array_equal(rec.sample(table, 5).values, expected)
        assert [h.steps for h in rec.histories_] == [h.steps for h in undisturbed.histories_]
        assert [h.terms for h in rec.histories_] == [h.terms for h in undisturbed.histories_]


def test_stops_more_than_once(table, tmp_path):
    expected = recoverer().fit(table).sample(table, 3).values
    stopped_after(Checkpoint(tmp_path, every=0), table, 3)
    for _ in range(4):
        stopped_after(Checkpoint(tmp_path, every=0, resume=True), table, 3)
    rec = recoverer().fit(table, checkpoint=Checkpoint(tmp_path, resume=True))
    assert np.array_equal(rec.sample(table, 3).values, expected)


def test_what_has_ended_is_not_run_again(table, tmp_path):
    recoverer().fit(table, checkpoint=Checkpoint(tmp_path))
    steps = []
    recoverer().fit(table, checkpoint=Checkpoint(tmp_path, resume=True), on_step=steps.append)
    assert not steps


def test_begins_anew_unless_told_to_go_on(table, tmp_path):
    stopped_after(Checkpoint(tmp_path, every=0), table, 5)
    steps = []
    recoverer().fit(table, checkpoint=Checkpoint(tmp_path), on_step=steps.append)
    assert steps[0].step == 20


def test_another_fit_is_refused(table, tmp_path):
    stopped_after(Checkpoint(tmp_path, every=0), table, 3)
    other = np.where(np.arange(len(table))[:, None] == 7, 2 * table, table)
    for rec, data in ((recoverer(noise=0.1), table), (recoverer(), other)):
        with pytest.raises(InvalidFile, match="another fit"):
            rec.fit(data, checkpoint=Checkpoint(tmp_path, resume=True))


def test_a_damaged_state_is_named(table, tmp_path):
    stopped_after(Checkpoint(tmp_path, every=0), table, 3)
    path = tmp_path / "run-00.checkpoint"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(InvalidFile, match="run-00"):
        recoverer().fit(table, checkpoint=Checkpoint(tmp_path, resume=True))


def test_clear_leaves_what_is_not_its_own(table, tmp_path):
    folder = tmp_path / "kept"
    recoverer(max_steps=20).fit(table, checkpoint=Checkpoint(folder))
    (folder / "notes.txt").write_text("mine")
    Checkpoint(folder).clear()
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    (folder / "notes.txt").unlink()
    Checkpoint(folder).clear()
    assert not folder.exists()


def test_a_full_disk_does_not_end_the_fit(table, tmp_path, monkeypatch):
    def full(*_):
        raise InvalidFile("Cannot write: No space left on device.")

    expected = recoverer(max_steps=60).fit(table).sample(table, 3).values
    save, folder = storage.save, tmp_path / "kept"
    monkeypatch.setattr(storage, "save", full)

    def on_step(progress):
        if progress.step == 40:  # there is room again
            monkeypatch.setattr(storage, "save", save)

    with pytest.warns(DataNotice, match="training continues: Cannot write") as said:
        rec = recoverer(max_steps=60).fit(table, checkpoint=Checkpoint(folder, every=0), on_step=on_step)
    assert len(said) == 1
    assert np.array_equal(rec.sample(table, 3).values, expected)
    assert (folder / "run-00.checkpoint").exists()
