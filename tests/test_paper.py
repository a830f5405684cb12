"""The paper's experiments on small files of the same make: what they compute is real, what they score means nothing."""

import gzip
import hashlib
import importlib
import io
import json
import struct
import urllib.request
import zipfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from unfade import FlowArchitecture
from unfade.cli.app import app
from unfade.diagnostics.evaluation import evaluate
from unfade.errors import InvalidData, InvalidFile, TrainingFailed
from unfade.inference.sampling import draw_blocks
from unfade.metrics import covered, energy_score
from unfade.paper import datasets, study
from unfade.paper.classification import _judge, _train
from unfade.paper.reproduce import EXPERIMENTS, reproduce
from unfade.paper.settings import SCHEDULES, Schedule
from unfade.paper.study import Setting, corrupt
from unfade.paper.tables import beside_the_paper
from unfade.paper.ways import ALL_WAYS, FLOW, WAYS
from unfade.training.loop import TrainingConfig


def idx(array):
    head = struct.pack(">BBBB", 0, 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.astype(np.uint8).tobytes()


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """Small files in the formats of the public ones, with digests to match."""
    folder, rng, patch = tmp_path_factory.mktemp("data"), np.random.default_rng(0), pytest.MonkeyPatch()
    for name, table in (("mnist", datasets.MNIST), ("fashion-mnist", datasets.FASHION)):
        (folder / name).mkdir()
        for file in list(table):
            rows = 700 if file.startswith("train") else 250
            shape = (rows, 28, 28) if "images" in file else (rows,)
            raw = idx(rng.integers(0, 256 if "images" in file else 10, shape))
            (folder / name / f"{file}.gz").write_bytes(gzip.compress(raw))
            patch.setitem(table, file, hashlib.sha256(raw).hexdigest())
    features = rng.integers(-32767, 32767, (561, 900)).astype(np.int16)
    features[10] = features[3]
    (folder / "uci_har").mkdir()
    labels = rng.integers(1, 7, 900)
    np.savez(folder / "uci_har" / "har_features_q16.npz", Xq_T=features, y=labels, n_train=np.int32(700))
    patch.setattr(datasets, "HAR_DIGEST", hashlib.sha256(features.tobytes()).hexdigest())
    depth = np.round(1000 + 10 * rng.normal(size=(12, 1, 1)) + 20 * np.arange(40) + 5 * np.arange(24)[:, None])
    depth[rng.random(depth.shape) < 0.1] = 0
    np.savez(folder / "kinect.v1_room.npz", depth=depth.astype(np.uint16), frame=np.arange(12))
    yield folder
    patch.undo()


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Nothing read before, and a schedule of seconds."""
    monkeypatch.setattr(study, "_LOADED", {})
    few = TrainingConfig(steps=3, batch_size=10)
    tiny = Schedule(few, few, train_rows=60, test_rows=30, scored=10, draws=4, n_candidates=5, classifier_steps=5, votes=3)
    monkeypatch.setitem(SCHEDULES, "quick", tiny)


@pytest.mark.parametrize(
    ("name", "entries", "classes"), [("mnist", 784, 10), ("fashion-mnist", 784, 10), ("uci-har", 561, 6)]
)
def test_data_sets_are_read_from_a_folder(data_dir, name, entries, classes):
    data = datasets.load(name, data_dir)
    assert data.train.shape == (700, entries)
    assert len(data.test_labels) == len(data.test)
    assert data.train.min() >= 0
    assert data.train.max() <= 1
    assert int(data.train_labels.max()) == classes - 1
    assert int(data.train_labels.min()) == 0
    assert data.distinct is None or (~data.distinct).nonzero().flatten().tolist() == [10]


def test_a_file_that_is_not_the_public_one_is_refused(data_dir, tmp_path):
    (tmp_path / "mnist").mkdir()
    for path in (data_dir / "mnist").iterdir():
        (tmp_path / "mnist" / path.name).write_bytes(path.read_bytes())
    (tmp_path / "mnist" / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(b"other"))
    with pytest.raises(InvalidFile, match="is not the public file"):
        datasets.load("mnist", tmp_path)
    (tmp_path / "mnist" / "train-labels-idx1-ubyte.gz").write_bytes(b"not gzip")
    with pytest.raises(InvalidFile, match="cannot be unpacked"):
        datasets.load("mnist", tmp_path)


def test_what_is_not_there_is_fetched(data_dir, tmp_path, monkeypatch):
    def answer(address, timeout):
        return (data_dir / "mnist" / address.rsplit("/", 1)[1]).open("rb")

    monkeypatch.setattr(urllib.request, "urlopen", answer)
    assert torch.equal(datasets.load("mnist", tmp_path).train, datasets.load("mnist", data_dir).train)
    assert len(list((tmp_path / "mnist").iterdir())) == 4


def test_har_is_unpacked_from_its_archive(tmp_path, monkeypatch):
    rng, inner = np.random.default_rng(1), io.BytesIO()
    tables = {"X_train": rng.uniform(-1, 1, (5, 561)), "X_test": rng.uniform(-1, 1, (3, 561))}
    with zipfile.ZipFile(inner, "w") as archive:
        for part in ("train", "test"):
            X = tables[f"X_{part}"]
            archive.writestr(f"UCI HAR Dataset/{part}/X_{part}.txt", "\n".join(" ".join(map(str, row)) for row in X))
            archive.writestr(f"UCI HAR Dataset/{part}/y_{part}.txt", "\n".join("1" for _ in X))
    outer = io.BytesIO()
    with zipfile.ZipFile(outer, "w") as archive:
        archive.writestr("UCI HAR Dataset.zip", inner.getvalue())
    quantised = np.round(np.concatenate([tables["X_train"], tables["X_test"]]) * 32767).astype(np.int16).T
    monkeypatch.setattr(datasets, "HAR_DIGEST", hashlib.sha256(np.ascontiguousarray(quantised).tobytes()).hexdigest())
    monkeypatch.setattr(urllib.request, "urlopen", lambda address, timeout: io.BytesIO(outer.getvalue()))
    data = datasets.load("uci-har", tmp_path)
    assert np.allclose(data.train.numpy(), (tables["X_train"] + 1) / 2, atol=1e-4)


def test_no_network_says_what_to_do(tmp_path, monkeypatch):
    def refuse(address, timeout):
        raise OSError("no route")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    with pytest.raises(InvalidFile, match="Put the file there"):
        datasets.load("mnist", tmp_path)


def test_corruption_is_the_settings_own(data_dir):
    data = datasets.load("mnist", data_dir)
    first = corrupt(data.train, Setting("mnist", 0.8, 1), data, "train")
    again = corrupt(data.train, Setting("mnist", 0.8, 1), data, "train")
    other = corrupt(data.train, Setting("mnist", 0.8, 2), data, "train")
    assert torch.equal(first.values, again.values)
    assert not torch.equal(first.observed, other.observed)
    assert float(first.observed.float().mean()) == pytest.approx(0.2, abs=0.01)
    noise = (first.values - data.train)[first.observed]
    assert float(noise.std()) == pytest.approx(0.1, rel=0.05)
    window = corrupt(data.train, Setting("mnist", None), data, "train")
    assert (window.observed.sum(1) == 100).all()


def test_votes_are_judged_by_hand():
    votes = torch.zeros(4, 10)
    votes[:, 0] = torch.tensor([1.0, 0.8, 0.8, 0.0])
    votes[1:3, 1], votes[3, 2] = 0.2, 1.0
    found = _judge(votes, torch.tensor([0, 0, 1, 3]))
    assert found["accuracy"] == 0.5
    assert found["calibration error"] == pytest.approx((2 * 0.5 + 2 * 0.3) / 4)  # bins of 1.0 and 0.8
    assert found["Brier score"] == pytest.approx((0 + 0.08 + 1.28 + 2) / 4)


LONG = ("table1", "supp-crossval", "fig6-classification")  # the same code as others, on more models
SHORT = sorted(set(EXPERIMENTS) - {"fig1-toy", *LONG})  # the toy is the demo's, tested there


@pytest.mark.parametrize("name", [*SHORT, *(pytest.param(name, marks=pytest.mark.slow) for name in LONG)])
def test_experiments_leave_a_folder(data_dir, tmp_path, name):
    report = reproduce(name, tmp_path, "quick", None, data_dir, "cpu", say=lambda line: None)
    assert (tmp_path / "report.md").read_text() == report
    assert json.loads((tmp_path / "settings.json").read_text())["experiment"] == name
    assert json.loads((tmp_path / "results.json").read_text())


def test_a_killed_run_goes_on_where_it_stopped(data_dir, tmp_path):
    class Killed(Exception):
        pass

    def kill(line):
        if "TAE as printed" in line:
            raise Killed

    with pytest.raises(Killed):
        reproduce("supp-mnar", tmp_path, "quick", 1, data_dir, "cpu", say=kill)
    before = json.loads((tmp_path / "results.json").read_text())
    seconds = before.pop("seconds")
    lines = []
    reproduce("supp-mnar", tmp_path, "quick", 1, data_dir, "cpu", say=lines.append)
    after = json.loads((tmp_path / "results.json").read_text())
    assert before.items() <= after.items()
    assert after["seconds"] > seconds
    assert not any("lim 10: MVAE," in line for line in lines)
    lines.clear()
    again = reproduce("supp-mnar", tmp_path, "quick", 1, data_dir, "cpu", say=lines.append)
    assert not lines  # neither models nor the picture are made again, and the report still has them
    assert "![](window.png)" in again
    part = reproduce("supp-mnar", tmp_path, "quick", 1, data_dir, "cpu", ways=["MIWAE"])
    assert "window.png" not in part
    with pytest.raises(InvalidFile, match="results of other settings"):
        reproduce("supp-mnar", tmp_path, "quick", 2, data_dir, "cpu")


def test_a_table_can_be_had_in_parts(data_dir, tmp_path):
    lines = []
    for lim in (10, 20):
        only = {"data": ["mnist"], "missing": [0.5, 0.8], "ways": ["MVAE"], "lims": [lim]}
        report = reproduce("table1", tmp_path, "quick", 1, data_dir, "cpu", say=lines.append, **only)
        assert f"lim {lim}" in report
        assert f"lim {30 - lim}" not in report
        assert "fashion" not in report
        assert "20% missing" not in report
        assert "noise" not in report.split("Schedule")[0]
        assert "unfade" not in report
        assert "ELBO less the paper's, in nats: MVAE" in report
        assert (tmp_path / "table1.png").exists()
    assert [line.split(",")[0] for line in lines] == ["lim 10: MVAE", "lim 20: MVAE"]
    found = json.loads((tmp_path / "results.json").read_text())
    assert len(found) == 2 * 2 + 1  # two missing ratios, and the seconds
    learned = reproduce("table1", tmp_path / "learned", "quick", 1, data_dir, "cpu", False, **only)
    assert "| exploding | noise |" in learned
    with pytest.raises(InvalidData, match="Expected some of mnist"):
        reproduce("table1", tmp_path, "quick", 1, data_dir, "cpu", data=["digits"])
    with pytest.raises(InvalidData, match=r"Expected some of 0\.2, 0\.5, 0\.8; got 0\.9"):
        reproduce("table1", tmp_path, "quick", 1, data_dir, "cpu", missing=[0.9])


def test_our_elbos_are_set_beside_the_papers():
    found = {("mnist", 0.2): {"MVAE": (1766.0, 0.0), "unfade": (1831.0, 0.0)}, ("mnist", 0.5): {"MVAE": (435.0, 0.0)}}
    papers = {("mnist", 0.2): {"MVAE": 883.0, "TAE": 1831.0}, ("mnist", 0.5): {"MVAE": 870.0, "TAE": 1719.0}}
    assert beside_the_paper(found, papers) == (
        "ELBO less the paper's, in nats: MVAE -435 to +883, within 5% in 0 of 2; "
        "unfade (less TAE's) +0, within 5% in 1 of 1."
    )


def test_the_command_line_tells_and_refuses(tmp_path):
    said = CliRunner().invoke(app, ["reproduce", "list"])
    assert all(name in said.output for name in EXPERIMENTS)
    dry = CliRunner().invoke(app, ["reproduce", "table1", "--dry-run"])
    assert json.loads(dry.output)["schedule"]["training"]["steps"] == SCHEDULES["equal"].training.steps
    assert CliRunner().invoke(app, ["reproduce", "table9"]).exit_code == 3
    with pytest.raises(InvalidData, match="is not repeated"):
        reproduce("fig1-toy", tmp_path, "quick", 3)
    with pytest.raises(InvalidData, match="Schedules are"):
        reproduce("table1", tmp_path, "slow")


def test_scores_are_those_of_the_evaluation(data_dir):
    made = study.Study(SCHEDULES["quick"], data_dir, torch.device("cpu"))
    clean, obs = made.rows(Setting("mnist", 0.5), "test")
    [posterior] = made.fit(WAYS["MIWAE, conditioned"], [made.rows(Setting("mnist", 0.5), "train")[1]], [0])
    found = made.scores(posterior, clean, obs, refined=True)
    some = obs[:10]
    drawn = torch.cat([v for _, v in draw_blocks(posterior, some, torch.arange(10), 4, seed=1, n_candidates=5)], 1)
    expected = evaluate(drawn, clean[:10].numpy(), some.observed.numpy())
    assert found["CRPS"] == pytest.approx(expected.crps, rel=1e-4)
    assert found["energy score"] == pytest.approx(expected.energy_score, rel=1e-4)
    each = energy_score(drawn, clean[:10], ~some.observed).numpy()
    assert found["energy score's standard error"] == pytest.approx(np.std(each, ddof=1) / 10**0.5, rel=1e-4)
    assert found["PSNR"] == pytest.approx(expected.psnr, rel=1e-4)
    seen = np.where(obs.observed, obs.values, np.nan)
    counted = ~some.observed & torch.from_numpy(np.nanvar(seen, axis=0) > 0.1**2 + 0.01)
    assert 0 < counted.sum() < (~some.observed).sum()  # some pixels hardly vary in what was seen, and are left out
    inside = covered(drawn, clean[:10], 0.9)[counted].double().mean()
    assert found["coverage"] == pytest.approx(float(inside))
    assert found["coverage due"] == pytest.approx(expected.coverage_due)


def test_flows_are_scored_as_others_are(data_dir, tmp_path, monkeypatch):
    small = FlowArchitecture((28, 28, 1), (8, 8), patch=4, steps=2)
    monkeypatch.setattr(study, "flow_architecture", lambda *_: small)
    quick = SCHEDULES["quick"]
    schedule = replace(quick, training=replace(quick.training, steps=3), scored=5, draws=2)
    made = study.Study(schedule, data_dir, torch.device("cpu"))
    setting, results = Setting("mnist", 0.5), study.Results(tmp_path, {})
    study.fill(made, results, [setting], "quick", lambda _: None, ["flow"], FLOW)
    found = results[study.key(setting, "flow", "quick")]
    assert all(np.isfinite(found[name]) for name in ("energy score", "CRPS", "ELBO", "error over sd"))
    assert found["coverage within two grey levels"] >= found["coverage"]


def test_scores_of_rows_make_up_the_score(data_dir):
    setting = Setting("mnist", 0.5)
    runs = study.Study(SCHEDULES["quick"], data_dir, torch.device("cpu"), by_row=True)
    _, train = runs.rows(setting, "train")
    clean, obs = runs.rows(setting, "test")
    scores = runs.scores(runs.fit(WAYS["MVAE"], [train], [0])[0], clean, obs, refined=False)
    for name, rows in scores["by row"].items():
        assert len(rows) == min(len(obs), runs.schedule.scored)
        assert np.mean(rows) == pytest.approx(scores[name], rel=1e-4)


@pytest.mark.parametrize(("name", "conditioned"), [("MIWAE", False), ("MIWAE, conditioned", True)])
def test_posteriors_are_fitted_as_they_are_to_be_drawn_from(data_dir, name, conditioned):
    made = study.Study(SCHEDULES["quick"], data_dir, torch.device("cpu"))
    [posterior] = made.fit(WAYS[name], [made.rows(Setting("mnist", 0.5), "train")[1]], [0])
    assert posterior.conditioned is conditioned


def test_who_is_first_is_decided_row_by_row(monkeypatch):
    """Differences that hold in every row count, however much rows differ; others are a tie. A lone method is not first."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    images = importlib.import_module("images_report")
    rows = np.random.default_rng(0).normal(10, 3, 200)

    def cell(masks):
        means = {"CRPS": float(np.mean(list(masks.values()))), "ELBO": 1.0, "ELBO's standard error": 0.1}
        return images.Scored(means, {mask: {"CRPS": list(values)} for mask, values in masks.items()})

    others = {"MVAE": cell({0: rows, 1: rows}), "MIWAE": cell({0: rows + 1})}
    assert images.first({"unfade": cell({0: rows - 0.1, 1: rows - 0.1}), **others}, "CRPS") == "unfade"
    shaken = rows + 1e-3 * (-1) ** np.arange(200) - 1e-6
    assert images.first({"unfade": cell({0: shaken}), **others}, "CRPS").endswith("a tie")
    assert images.first({"unfade": cell({0: rows}), "unfade, resampled": cell({0: rows + 1})}, "CRPS") == ""
    assert images.first({"unfade": cell({0: rows}), **others}, "ELBO").endswith("a tie")


def test_rows_that_are_trained_on_can_be_scored(data_dir, monkeypatch):
    made = study.Study(SCHEDULES["quick"], data_dir, torch.device("cpu"))
    few, unseen = Setting("mnist", 0.5, rows=7, trained_on=True), Setting("mnist", 0.5)
    clean, obs = made.rows(few, "train")
    assert len(clean) == 7
    assert torch.equal(clean, made.rows(unseen, "train")[0][:7])
    assert str(few) != str(unseen)
    assert [len(group) for group in made.groups([few, unseen, replace(few, mask=1)])] == [2, 1]
    scored = []
    monkeypatch.setattr(study.Study, "elbos", lambda self, posteriors, clean, obs: [{"ELBO": 0.0}] * len(obs))
    monkeypatch.setattr(study.Study, "scores", lambda self, posterior, clean, obs, *_: scored.append(clean) or {})
    results = study.Results(data_dir / "scored", {})
    for setting in (few, unseen):
        study._score(made, results, [setting], "", {"MVAE": WAYS["MVAE"]}, made.fits(WAYS["MVAE"], [obs], [0]), 1.0)
    assert torch.equal(scored[0], clean)
    assert torch.equal(scored[1], made.rows(unseen, "test")[0])


def test_one_model_is_scored_on_rows_it_was_trained_on_and_on_others(data_dir, tmp_path):
    made = study.Study(SCHEDULES["quick"], data_dir, torch.device("cpu"))
    settings = [Setting("uci-har", share, trained_on=part) for share in (0.2, 0.5) for part in (True, False)]
    assert [len(group) for group in made.groups(settings)] == [4]
    assert [len(group) for group in made.groups(settings, alike=True)] == [2, 2]
    lines, results = [], study.Results(tmp_path, {})
    study.fill(made, results, settings, "once", lines.append, ["MVAE"])
    assert lines == ["once: MVAE, 2 models together, first uci-har, 20% missing, mask 0"]
    assert len({results[study.key(setting, "MVAE", "once")]["energy score"] for setting in settings}) == 4
    study.fill(made, results, settings, "once", lines.append, ["MVAE", "unfade"])
    assert [line.split(", ")[1] for line in lines[1:]] == ["1 models together"] * 2  # the length is each one's own


def test_an_interrupted_group_is_nobodys_result(data_dir, monkeypatch):
    made = study.Study(SCHEDULES["quick"], data_dir, torch.device("cpu"))

    def interrupt(progress):
        raise KeyboardInterrupt

    monkeypatch.setattr(study, "Task", partial(study.Task, on_step=interrupt))
    with pytest.raises(KeyboardInterrupt):
        made.fit(WAYS["MVAE"], [made.rows(Setting("mnist", 0.5), "train")[1]], [0])


def test_columns_that_repeat_another_are_not_scored(data_dir):
    made = study.Study(SCHEDULES["quick"], data_dir, torch.device("cpu"))
    clean, obs = made.rows(Setting("uci-har", 0.5), "test")
    [posterior] = made.fit(WAYS["MVAE"], [made.rows(Setting("uci-har", 0.5), "train")[1]], [0])
    some = torch.arange(561) < 100
    drawn = torch.cat([v for _, v in draw_blocks(posterior, obs[:10], torch.arange(10), 4, seed=1)], 1)
    expected = evaluate(drawn[..., :100], clean[:10, :100].numpy(), obs.observed[:10, :100].numpy())
    assert made.scores(posterior, clean, obs, False, some)["CRPS"] == pytest.approx(expected.crps, rel=1e-4)


def test_a_model_that_ignores_the_noise_has_it_in_its_decoder(data_dir):
    """Its density is of all entries, observed ones too, and nothing is pinned or conditioned."""
    made = study.Study(SCHEDULES["quick"], data_dir, torch.device("cpu"))
    _, obs = made.rows(Setting("mnist", 0.5), "train")
    [posterior] = made.fit(ALL_WAYS["MVAE, noise ignored, sigmoid"], [obs], [0])
    density = posterior.clean(posterior.latent(obs).base_dist.loc, obs)
    assert float(density.base_dist.scale.min()) > 0
    assert 0 < float(density.base_dist.loc.min()) < float(density.base_dist.loc.max()) < 1
    by_hand = torch.where(obs.observed, density.base_dist.log_prob(obs.values), 0).sum(1)
    assert torch.allclose(posterior.corruption.marginal_log_prob(obs, density), by_hand, rtol=1e-4)


def test_the_authors_habits_are_those_of_the_public_code(data_dir):
    made = study.Study(SCHEDULES["quick"], data_dir, torch.device("cpu"))
    way = ALL_WAYS["TAE, author's habits"]
    assert way.training(made.schedule.training).clip_norm == np.inf
    assert WAYS["TAE as printed"].training(made.schedule.training).clip_norm == made.schedule.training.clip_norm
    networks = way.architecture(replace(made.architecture, width=20.0))
    encoder, decoder, prior = networks.encoder(1568), networks.decoder(784), networks.prior(784)
    first = decoder.network.layers[0]
    assert float(first.weight.abs().max()) == pytest.approx((6 / 420) ** 0.5, rel=0.01)
    assert not float(first.bias.abs().max())
    z = torch.randn(7, 20)
    mean, raw = decoder.network(z).chunk(2, -1)
    density = decoder(z).base_dist
    assert torch.allclose(density.loc, mean.sigmoid(), atol=1e-6)
    assert torch.allclose(density.variance, (20 * ((raw / 20).sigmoid() - 0.5)).exp() + 1e-5, rtol=1e-4)
    _, raw = encoder.network(torch.zeros(1, 1568) + 3).chunk(2, -1)
    inside = encoder(torch.zeros(1, 1568) + 3).base_dist
    assert torch.allclose(inside.variance, (10 * ((raw / 10).sigmoid() - 0.5)).exp() + 1e-5, rtol=1e-4)
    assert 0 < float(prior.decoder(torch.zeros(1, 5)).base_dist.loc.min()) < 1
    assert torch.nn.functional.leaky_relu(torch.tensor(-1.0), 0.2) == decoder.network.layers[1](torch.tensor(-1.0))


def test_readings_of_the_paper_are_in_the_table(data_dir, tmp_path):
    """R - Q stands beside the printed TAE alone, inferred levels beside the way that infers, failures are left out."""
    ways = ["MVAE, noise ignored", "TAE, author's habits", "TAE, noise inferred"]
    only = {"data": ["uci-har"], "missing": [0.5], "ways": ways, "lims": [20], "masks": [1]}
    report = reproduce("table1", tmp_path, "quick", 2, data_dir, "cpu", say=lambda line: None, **only)
    found = json.loads((tmp_path / "results.json").read_text())
    blind, author, inferred = (found[f"uci-har, 50% missing, mask 1; {way}; lim 20"] for way in ways)
    assert "R - Q" in author
    assert "R - Q" not in blind
    levels = [inferred[f"noise, {share}% of rows below"] for share in (5, 50, 95)]
    assert levels == sorted(levels)
    assert levels[0] < levels[2]
    assert blind["ELBO"] >= blind["ELBO of q(z|y)"]
    assert "| R - Q |" in report
    assert "| noise |" in report
    with pytest.raises(InvalidData, match="Masks are 0 to 1, got 2"):
        reproduce("table1", tmp_path, "quick", 2, data_dir, "cpu", masks=[2])


def test_a_way_whose_training_fails_is_left_out(data_dir, tmp_path, monkeypatch):
    def fail(name, tasks, settings):
        raise TrainingFailed("not finite")

    monkeypatch.setattr(study, "fit_many", fail)
    only = {"data": ["mnist"], "missing": [0.5], "ways": ["MVAE"], "lims": [20]}
    lines = []
    report = reproduce("table1", tmp_path, "quick", 1, data_dir, "cpu", say=lines.append, **only)
    assert lines[-1] == "not finite"
    assert "| MVAE |" not in report


def test_draws_that_explode_are_counted(data_dir, monkeypatch):
    made = study.Study(SCHEDULES["quick"], data_dir, torch.device("cpu"))
    clean, obs = made.rows(Setting("mnist", 0.5), "test")
    drawn = clean[:10].expand(4, 10, 784).clone()
    drawn[0, 3, 5] = 2.1  # one draw of four of one row of ten
    monkeypatch.setattr(study, "draw_blocks", lambda *_, **__: [(slice(0, 10), drawn)])
    found = made.scores(None, clean, obs, refined=False)
    assert found["exploding"] == pytest.approx(1 / 40)
    error = (2.1 - float(clean[3, 5])) / 4
    assert found["PSNR, all entries"] == pytest.approx(-10 * np.log10(error**2 / 7840), rel=1e-3)


@pytest.fixture
def parts(monkeypatch):
    """The table in parts, of which one mask is as many as there are."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    table1 = importlib.import_module("table1")
    monkeypatch.setattr(table1, "REPEATS", 1)
    return table1


def test_the_full_plan_holds_every_way_and_every_cell_at_some_floor(parts):
    planned = {name for job in parts.FULL for name in job.keys}
    cells = [(data, share) for data in ("mnist", "fashion-mnist", "uci-har") for share in (0.2, 0.5, 0.8)]
    for way in ALL_WAYS:
        there = [all(study.key(Setting(*cell, 0), way, f"lim {lim}") in planned for cell in cells) for lim in (10, 20)]
        assert all(there) if way in WAYS else any(there), way
    assert {name for job in parts.SHORT for name in job.keys} <= planned


def test_a_table_in_parts_goes_on_with_what_it_has(data_dir, tmp_path, parts):
    job = parts.Job(("MVAE",), ("mnist",), 20.0, (0,), "quick", (0.5,))
    for share in (0.5, 0.8):
        asked = json.dumps({**parts.asdict(job), "missing": (0.5, share)})
        where = ["--data-dir", str(data_dir), "--device", "cpu", "--work", str(tmp_path / "work")]
        parts.main([str(tmp_path), "--job", asked, *where])
        found = parts.merge(tmp_path, tmp_path / "work")["quick"]
        assert f"mnist, {share:.0%} missing, mask 0; MVAE; lim 20" in found
        if share == 0.5:
            seconds = found["mnist, 50% missing, mask 0; MVAE; lim 20"]["training seconds"]
    assert found["mnist, 50% missing, mask 0; MVAE; lim 20"]["training seconds"] == seconds  # was not run again
    parts.main([str(tmp_path), "--report", *where])
    assert "| MVAE | 870 ± 6 |" in (tmp_path / "quick" / "report.md").read_text()


def test_programs_are_stopped_in_time(tmp_path, parts, monkeypatch):
    class Program:
        started, stopped = [], 0

        def __init__(self, command, env):
            Program.started.append(json.loads(command[command.index("--job") + 1])["ways"][0])
            self.returncode = 0

        def poll(self):
            return None if "sigmoid" in Program.started[-1] and len(Program.started) == 2 else 0

        def terminate(self):
            Program.stopped += 1

        def wait(self):
            pass

    monkeypatch.setattr(parts.subprocess, "Popen", Program)
    monkeypatch.setattr(parts.time, "sleep", lambda seconds: None)
    where = ["--plan", "short", "--device", "cpu", "--work", str(tmp_path / "work"), "--at-once", "1"]
    parts.main([str(tmp_path), "--seconds", "0.3", "--least", "0", *where])
    assert len(Program.started) == 2
    assert Program.stopped == 1


def test_a_classifier_sees_each_draw_once():
    """Of 300 rows and pools of 2 draws, in batches of 100: a draw for each pass of three steps, a pool for each two."""
    seen = []

    def pool(number):
        rows = torch.arange(300.0)[None, None, :, None].expand(1, 2, 300, 1)
        draws = torch.arange(2.0)[None, :, None, None].expand(1, 2, 300, 1) + 2 * number
        return torch.cat([rows, draws], -1)

    class Spied:
        def __init__(self, inputs):
            self.inputs, self.shape, self.device = inputs, inputs.shape, inputs.device

        def __getitem__(self, index):
            seen.append(self.inputs[index])
            return self.inputs[index]

    _train(lambda number: Spied(pool(number)), torch.zeros(1, 300, dtype=torch.long), 12)
    rows, draws = torch.cat(seen, 1)[0].unbind(-1)
    assert len(set(zip(rows.tolist(), draws.tolist(), strict=True))) == 12 * 100
    assert draws.reshape(4, 300).unique(dim=1).flatten().tolist() == [0, 1, 2, 3]
