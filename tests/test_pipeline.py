"""The pipeline: rows from any source through a fitted model into any sinks."""

import numpy as np
import pandas as pd

from unfade import Recoverer
from unfade.inference import fitted_model
from unfade.pipeline import Block, collect, recover


def fitted():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 3)), columns=list("abc"))
    frame = frame.mask(rng.random(frame.shape) < 0.3)
    return frame, Recoverer(max_steps=5, n_members=1, n_candidates=5, random_state=0, verbose=0).fit(frame)


def test_blocks_give_what_the_whole_gives_however_many_workers():
    frame, rec = fitted()
    whole = collect(rec.model_, frame, draws=3, seed=4)
    for workers in (1, 3):
        found = []
        blocks = (Block(start, frame.iloc[start : start + 25]) for start in range(0, 60, 25))
        recover(rec.model_, blocks, [found.append], 3, 4, workers=workers)
        found.sort(key=lambda each: each.block.start)
        pd.testing.assert_frame_equal(pd.concat([each.clean for each in found]), whole.clean)
        assert np.array_equal(np.concatenate([each.draws.values for each in found], 1), whole.draws.values)


def test_a_draw_that_fills_cells_depends_on_the_row_and_not_on_its_block():
    frame, rec = fitted()
    model = rec.model_.with_options(fill="draw")
    found = []
    recover(model, [Block(20, frame.iloc[20:40])], [found.append])
    pd.testing.assert_frame_equal(found[0].clean, collect(model, frame).clean.iloc[20:40])


def test_a_block_is_read_once_for_mean_and_draws(monkeypatch):
    frame, rec = fitted()
    read, calls = fitted_model.read, []
    monkeypatch.setattr(fitted_model, "read", lambda *given, **said: calls.append(1) or read(*given, **said))
    collect(rec.model_, frame, draws=2)
    assert len(calls) == 1
