import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import small_table
from safetensors.torch import save_file

from unfade import InvalidData, InvalidFile, Recoverer, storage
from unfade.io.tables import read_table
from unfade.methods.registry import METHODS


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
        {"settings": {"posterior": "predictive"}, "n_candidates": 20},
        {"noise": "learn-shared"},
    ],
)
def test_special_parts_are_stored(tmp_path, settings):
    table = small_table()
    rec = Recoverer(**settings, max_steps=20, random_state=1, verbose=0).fit(table)
    rec.save(tmp_path / "m.unfade")
    assert np.array_equal(Recoverer.load(tmp_path / "m.unfade").sample(table, 3).values, rec.sample(table, 3).values)


def test_steps_of_different_lengths_are_stored(tmp_path):
    rng = np.random.default_rng(0)
    table = np.stack([rng.integers(0, most, 80) for most in (3, 30)], 1).astype(float)
    table[rng.random(table.shape) < 0.2] = np.nan
    rec = Recoverer(max_steps=5, n_members=1, random_state=0, verbose=0).fit(table)
    rec.save(tmp_path / "m")
    assert sorted(rec.encoder_.repeated) == [0, 1]
    assert np.array_equal(Recoverer.load(tmp_path / "m").sample(table, 2).values, rec.sample(table, 2).values)


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
    assert rec.method == "auto"  # files of formats 1 and 2 hold its former name, "tae"
    again = rec.set_params(max_steps=2, n_members=1, n_candidates=0).fit(table).transform(table)
    assert not any(again[name].null_count for name in again.column_names)


def test_the_exact_bound_is_stored_under_its_name(tmp_path):
    X = np.random.default_rng(0).normal(size=(30, 3))
    Recoverer("tae", max_steps=2, random_state=0, verbose=0).fit(X).save(tmp_path / "m")
    assert Recoverer.load(tmp_path / "m").method == "tae"


def test_an_output_that_is_a_link_is_followed(tmp_path):
    real, link, void = tmp_path / "data" / "real.csv", tmp_path / "link.csv", tmp_path / "void.csv"
    real.parent.mkdir()
    real.write_text("old")
    link.symlink_to("data/real.csv")
    with pytest.raises(ValueError, match="broken"), storage.whole_or_nothing(link) as draft:
        draft.write_text("half")
        raise ValueError("broken")
    assert real.read_text() == "old"
    with storage.whole_or_nothing(link) as draft:
        assert draft.parent == real.parent  # on the same disk, so that the name changes at once
        draft.write_text("new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    void.symlink_to("data/new.csv")  # to what is not there yet
    with storage.whole_or_nothing(void) as draft:
        draft.write_text("new")
    assert sorted(path.name for path in real.parent.iterdir()) == ["new.csv", "real.csv"]


def test_links_in_a_circle_and_pipes_are_refused(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    os.mkfifo(tmp_path / "pipe")
    for name, message in (("a", "in a circle"), ("pipe", "a device or a pipe")):
        with pytest.raises(InvalidFile, match=message):
            storage.check_writable(tmp_path / name)
    assert (tmp_path / "pipe").is_fifo()


def test_long_names_are_written_or_refused_in_a_sentence(tmp_path):
    for name in ("x" * 251 + ".csv", "x." + "y" * 253, "é" * 120 + ".csv"):
        with storage.whole_or_nothing(tmp_path / name) as draft:
            draft.write_text("all")
        assert (tmp_path / name).read_text() == "all"
    for act in (storage.check_writable, storage.load, read_table, lambda path: storage.check_free(path)):
        with pytest.raises(InvalidFile, match=r"\(\d+ bytes\) is too long"):
            act(tmp_path / ("x" * 300 + ".csv"))


def test_names_of_other_encodings_are_refused_in_a_sentence(tmp_path):
    name = os.fsdecode(os.fsencode(tmp_path) + b"/z\xfcrich.csv")
    with open(name, "w") as file:
        file.write("x,y\n1,2\n")
    for act in (storage.check_writable, storage.load, read_table):
        with pytest.raises(InvalidFile, match=r"z\\xfcrich.csv is not valid UTF-8"):
            act(name)


def _changed(path, target, change):
    """The model file with its metadata changed in place."""
    tensors, meta = storage.load(path)
    change(meta)
    storage.save(target, tensors, meta)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda meta: meta["parameters"].update(n_candidates=10**12), "n_candidates must be an integer"),
        (lambda meta: meta["parameters"].update(method="magic"), "method must be one of"),
        (lambda meta: meta["parameters"].update(detection_limits=7), "detection_limits must be a dictionary"),
        (lambda meta: meta["parameters"].pop("method"), r"parameters has no \['method'\]"),
        (lambda meta: meta["architecture"].update(latent=10**20), "latent must be an integer"),
        (lambda meta: meta["architecture"].update(width=0), "width must be a finite number"),
        (lambda meta: meta.update(architecture={"image": [0, 0, 1]}), r"image\[0\] must be an integer from 1"),
        (lambda meta: meta["architecture"].update(more=1), "'more', which this version does not know"),
        (lambda meta: meta["posterior"].update(members=10**12), "members must be an integer from 1 to 16"),
        (lambda meta: meta.update(posterior=None), "a posterior belongs to entries"),
        (lambda meta: meta.update(histories=[{"steps": 1}]), "steps must be a list"),
        (lambda meta: meta.update(event_shape=[3, 2]), "shape"),
        (lambda meta: meta.update(spread=float("nan")), "spread must be a finite number"),
        (lambda meta: meta.update(levels=[[0, 10**12]]), "categories"),
        (lambda meta: meta.update(limited=[4]), "not modelled so"),
        (lambda meta: meta.update(seed=True), "seed must be an integer"),
        (lambda meta: meta.update(noise="loud"), "noise must be a list"),
        (lambda meta: meta.update(feature_names=["a", "a", "b", "c"]), "occur twice"),
    ],
)  # fmt: skip
def test_crafted_metadata_is_refused_in_a_sentence(tmp_path, fitted, change, message):
    fitted.save(tmp_path / "m")
    _changed(tmp_path / "m", tmp_path / "crafted", lambda meta: meta.pop("format"))
    Recoverer.load(tmp_path / "crafted")  # as it was
    _changed(tmp_path / "m", tmp_path / "crafted", lambda meta: (meta.pop("format"), change(meta)))
    with pytest.raises(InvalidFile, match=message):
        Recoverer.load(tmp_path / "crafted")


@pytest.mark.parametrize("meta", ["[" * 100_000 + "]" * 100_000, '{"format": 1e999}', '{"format": null}', "7"])
def test_metadata_that_is_no_dictionary_is_refused_in_a_sentence(tmp_path, meta):
    save_file({"a": torch.zeros(1)}, tmp_path / "crafted", {"unfade": meta})
    with pytest.raises(InvalidFile, match="not a model that unfade saved"):
        Recoverer.load(tmp_path / "crafted")


def test_more_candidates_than_memory_holds_are_refused(fitted, table):
    with pytest.raises(InvalidData, match="from 0 to 10000, got 1000000000000"):
        fitted.sample(table, 1, n_candidates=10**12)
