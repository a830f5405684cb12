import json
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import small_table
from safetensors.torch import save_file

from unfade import InvalidFile, Recoverer, storage
from unfade.files import read_table
from unfade.methods import METHODS


@pytest.mark.parametrize("method", METHODS)
def test_draws_after_loading_are_equal_bit_for_bit(tmp_path, method):
    table = small_table()
    rec = Recoverer(method, noise=3.0, max_steps=20, random_state=1, verbose=0).fit(table)
    rec.save(tmp_path / "model.unfade")
    back = Recoverer.load(tmp_path / "model.unfade")
    assert np.array_equal(back.sample(table, 5).values, rec.sample(table, 5).values)
    assert np.array_equal(back.transform(table), rec.transform(table))
    assert back.noise_ == rec.noise_
    assert back.get_params()["method"] == method


@pytest.mark.parametrize(
    "settings",
    [
        {"noise": "infer", "method": "tae-paper"},
        {"settings": {"posterior": "bound"}},
        {"settings": {"posterior": "predictive"}, "refine": 20},
        {"noise": "learn-shared"},
    ],
)
def test_special_parts_are_stored(tmp_path, settings):
    table = small_table()
    rec = Recoverer(**settings, max_steps=20, random_state=1, verbose=0).fit(table)
    rec.save(tmp_path / "m.unfade")
    assert np.array_equal(Recoverer.load(tmp_path / "m.unfade").sample(table, 3).values, rec.sample(table, 3).values)


def test_names_and_noise_are_stored(tmp_path):
    import pandas as pd

    frame = pd.DataFrame(small_table(), columns=list("abcd"))
    rec = Recoverer(noise=[1.0, 2.0, 3.0, 0.0], max_steps=5, verbose=0).fit(frame)
    rec.save(tmp_path / "m.unfade")
    back = Recoverer.load(tmp_path / "m.unfade")
    assert list(back.feature_names_in_) == list("abcd")
    assert np.allclose(back.noise_, [1, 2, 3, 0])


def test_damaged_and_foreign_files_are_refused(tmp_path, fitted):
    path = tmp_path / "m.unfade"
    fitted.save(path)
    whole = path.read_bytes()
    cases = {
        "cut": whole[: len(whole) // 2],
        "empty": b"",
        "text": b"not a model at all",
        "flipped": b"\xff" * 16 + whole[16:],
    }
    for name, content in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InvalidFile, match=r"not a model that unfade saved|damaged"):
            Recoverer.load(tmp_path / name)
    save_file({"a": torch.zeros(1)}, tmp_path / "foreign")
    with pytest.raises(InvalidFile, match="not a model that unfade saved"):
        Recoverer.load(tmp_path / "foreign")
    with pytest.raises(InvalidFile, match="found none"):
        Recoverer.load(tmp_path / "nowhere")


def test_parts_that_do_not_fit_are_refused(tmp_path, fitted):
    fitted.save(tmp_path / "m")
    tensors, meta = storage.load(tmp_path / "m")
    del meta["format"]
    storage.save(tmp_path / "wrong", {k: v for k, v in tensors.items() if "encoder" not in k}, meta)
    with pytest.raises(InvalidFile, match="do not fit"):
        Recoverer.load(tmp_path / "wrong")


def test_a_newer_format_is_named(tmp_path):
    save_file({"a": torch.zeros(1)}, tmp_path / "new", {"unfade": json.dumps({"format": 99})})
    with pytest.raises(InvalidFile, match="format 99"):
        Recoverer.load(tmp_path / "new")


def test_nothing_is_left_when_writing_fails(tmp_path):
    with pytest.raises(ValueError, match="broken"), storage.whole_or_nothing(tmp_path / "out") as draft:
        draft.write_text("half")
        raise ValueError("broken")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_exists_is_replaced_whole_or_kept(tmp_path):
    path = tmp_path / "out"
    path.write_text("old")
    with pytest.raises(ValueError, match="broken"), storage.whole_or_nothing(path) as draft:
        draft.write_text("half")
        raise ValueError("broken")
    assert path.read_text() == "old"
    with storage.whole_or_nothing(path) as draft:
        draft.write_text("new")
    assert path.read_text() == "new"


@pytest.mark.parametrize("path", sorted((Path(__file__).parent / "golden").glob("*.unfade")), ids=lambda path: path.stem)
def test_models_of_every_format_load(path):
    """A model for each format there was, made by `tests/make_golden.py`; numbers agree to rounding across versions."""
    said = json.loads(path.with_suffix(".json").read_text())
    table = read_table(path.parent / "table.csv").select(list(said["mean"]))
    rec = Recoverer.load(path)
    for found, expected in [
        (rec.transform(table), said["mean"]),
        *zip(rec.sample(table, 4, seed=5), said["draws"], strict=True),
    ]:
        for name, values in expected.items():
            cells, given = found[name].to_pylist(), table[name].to_pylist()
            if name == "count":  # means of missing whole numbers are whole now
                values = [round(value) if cell is None else value for value, cell in zip(values, given, strict=True)]
            if isinstance(values[0], str):
                assert np.mean([a == b for a, b in zip(cells, values, strict=True)]) > 0.95
            else:
                assert np.allclose(cells, values, rtol=1e-3, atol=1e-3)
