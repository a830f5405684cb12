"""Methods side by side: `python benchmarks/scoreboard.py tables|categories|images|noise|toys --data-dir FOLDER`.

Holes are cut into complete tables, the truth reaches the scorer only, all draw as often. Every cell (table, setting,
seed, method) is a file under build/scoreboard; what is there is not run again, so several commands may work at
once (`--jobs`: so many of unfade's own cells at the same time, a thread each). `--report` writes what was run to
build/scoreboard as Markdown and as a picture. `categories`: tables with texts, further holes cut into them, scored on their
categories by the share of draws that name the true one. `images`: MNIST, Fashion-MNIST and UCI HAR with noise of
sd 0.1 known to all, with the networks of a default fit (`images.py`). `noise`: the level that a
default fit finds in MNIST and Fashion-MNIST. `toys`: two dimensions, beside the exact posterior.
"""

import argparse
import json
import multiprocessing
import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import peers
import torch
from images import FOR_IMAGES, SCHEDULES, images
from scipy.stats import rankdata

from unfade import Recoverer
from unfade.corruption.noise import mask_at_random, mask_given_others
from unfade.demo import corrupt, toy
from unfade.diagnostics.evaluation import evaluate
from unfade.io.tables import read_table
from unfade.paper.datasets import load
from unfade.storage import whole_or_nothing
from unfade.training.loop import Progress

DRAWS = 20
TABLES = {  # name: how many rows, chosen by a seed (None: all)
    "concrete": None,
    "wine_quality_red": None,
    "wine_quality_white": 1000,
    "breast_cancer_diagnostic": None,
    "uci_energy": None,
    "uci_yacht": None,
    "uci_airfoil": None,
    "uci_parkinsons": 1000,
    "spambase": 1000,
    "ionosphere": None,
}
# 30 % missing in each; noise: of 0.3 column sds on what is observed, told to those that can use it
SETTINGS = ("MCAR", "MAR", "noise")
CATEGORIES = {"adult_train_missing": 2000, "titanic_missing": None, "penguins_missing": None, "horse_colic_missing": None}
FOR_CATEGORIES = ["unfade", "MIWAE", "shares", "miceforest", "mice pmm", "mice cart"]  # pmm: for numbers alone
RESULTS = Path("build/scoreboard")


def truth(name: str, folder: Path) -> np.ndarray:
    """The numbers of a table, columns that never change left out."""
    table = read_table(folder / f"{name}.csv.gz")
    columns = [np.asarray(c, dtype=float) for c in table.columns if str(c.type) in ("double", "int64")]
    X = np.stack(columns, 1)
    rows = TABLES[name]
    if rows is not None:
        X = X[np.sort(np.random.default_rng(0).permutation(len(X))[:rows])]
    return X[:, X.std(0) > 0]


def corrupted(X: np.ndarray, setting: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Observations with holes, and the sd of the noise on each column."""
    generator = torch.Generator().manual_seed(seed)
    clean = torch.from_numpy(X)
    mask = mask_given_others(clean, 0.3, generator) if setting == "MAR" else mask_at_random(clean.shape, 0.3, generator)
    level = 0.3 * X.std(0) if setting == "noise" else np.zeros(X.shape[1])
    noisy = X + level * np.random.default_rng(seed).normal(size=X.shape)
    return np.where(mask.numpy(), noisy, np.nan), level


def ours(method: str, **parameters: Any) -> Callable[..., dict[str, Any]]:
    """A method of unfade as the peers are run."""

    def run(Y: np.ndarray, seed: int, level: np.ndarray, device: str) -> dict[str, Any]:
        started = time.perf_counter()
        noise = level if level.any() else None
        rec = Recoverer(method, noise=noise, random_state=seed, verbose=0, device=device, **parameters).fit(Y)
        draws = rec.sample(Y, DRAWS).values
        seconds, peak = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        said = {"device": device, "stages": [str(history) for history in rec.histories_]}
        if rec.held_out_ is not None:  # what the fit itself says, to be set beside the truth
            cells = rec.held_out_
            said |= {"held out: coverage": float(cells.covered().mean()), "held out: coverage due": cells.due()}
        return {"draws": draws, "seconds": seconds, "memory": peak, "said": said}

    return run


def peer(name: str) -> Callable[..., dict[str, Any]]:
    """A peer; the noise is told to those that can use it, in units of the column's sd."""

    def run(Y: np.ndarray, seed: int, level: np.ndarray, device: str) -> dict[str, Any]:
        centre, scale = np.nanmean(Y, 0), np.nanstd(Y, 0)
        scale[scale == 0] = 1.0
        found = peers.run(name, (Y - centre) / scale, DRAWS, seed, float(np.mean(level / scale)))
        return {**found, "draws": found["draws"] * scale + centre}

    return run


SMALLEST = ("uci_yacht", "uci_energy")  # what ForestDiffusion is run on: it takes long
METHODS = {
    "unfade": ours("tae"),
    "MIWAE": ours("miwae"),
    **{name: peer(name) for name in (*peers.PEERS, *peers.R_PEERS)},
}


def score(X: np.ndarray, Y: np.ndarray, draws: np.ndarray) -> dict[str, float]:
    """On missing cells, and where there is noise on observed ones too, in sds of the clean observed values.

    For coverage ties are broken by chance, else columns of few values would make it look better than it is.
    """
    seen = ~np.isnan(Y)
    unit = np.array([X[seen[:, j], j].std() or X[:, j].std() for j in range(X.shape[1])])
    chance = np.random.default_rng(0)
    apart_draws, apart_truth = (values + 1e-6 * unit * chance.random(values.shape) for values in (draws, X))
    result = {}
    for cells in ("missing", "observed"):
        found = evaluate(draws, X, seen, cells=cells, unit=unit)
        apart = evaluate(apart_draws, apart_truth, seen, cells=cells, unit=unit)
        result |= {
            f"{cells}: CRPS": found.crps,
            f"{cells}: energy score": found.energy_score,
            f"{cells}: RMSE": found.rmse,
            f"{cells}: coverage": apart.coverage,
            f"{cells}: coverage due": apart.coverage_due,
        }
    return result


def frame_of(name: str, folder: Path) -> pd.DataFrame:
    """A table with categories as text: texts, truth values, and whole numbers of up to seven values, which are codes."""
    frame = pd.read_csv(folder / f"{name}.csv.gz")
    rows = CATEGORIES[name]
    if rows is not None:
        frame = frame.sample(rows, random_state=0).sort_index().reset_index(drop=True)
    for column in frame:
        values = frame[column].dropna()
        numeric = pd.api.types.is_numeric_dtype(values) and values.dtype != bool
        if not numeric or (values.nunique() <= 7 and (values == values.round()).all()):
            texts = values.astype(int).map("code {}".format) if numeric else values.map("{}".format)
            frame[column] = texts.reindex(frame.index).astype(object)
    return frame.loc[:, frame.nunique() > 1]


def score_frame(frame: pd.DataFrame, holed: pd.DataFrame, draws: pd.DataFrame) -> dict[str, float]:
    """On the categories of cells that were cut out: log score and Brier score, a mean over columns of means over cells.

    Of m draws, a category that k name has probability (k + 1/2) / (m + c/2), c the number of categories.
    """
    logs, squares = [], []
    for column in frame.select_dtypes(object):
        hidden = (holed[column].isna() & frame[column].notna()).to_numpy()
        values = sorted(frame[column].dropna().unique())
        said = draws[column].astype(str).to_numpy().reshape(DRAWS, -1)[:, hidden]
        counts = np.stack([(said == value).sum(0) for value in values])
        chance = (counts + 0.5) / (counts.sum(0) + 0.5 * len(values))
        true = frame[column].to_numpy()[hidden] == np.array(values, dtype=object)[:, None]
        logs.append(-np.log(chance[true]).mean())
        squares.append(((chance - true) ** 2).sum(0).mean())
    return {"missing: log score": float(np.mean(logs)), "missing: Brier score": float(np.mean(squares))}


def categories(folder: Path, names: list[str], seeds: int, methods: list[str]) -> None:
    """Run what is not among the results yet."""
    for seed in range(seeds):
        for name in names:
            frame = frame_of(name, folder)
            holed = frame.mask(np.random.default_rng(seed).random(frame.shape) < 0.3)
            for method in methods:
                if not _file(name, "MCAR", seed, method).exists():
                    _keep(name, "MCAR", seed, method, _frame_cell(frame, holed, method, seed))


def _frame_cell(frame: pd.DataFrame, holed: pd.DataFrame, method: str, seed: int) -> dict[str, Any]:
    started = time.perf_counter()
    try:
        if method in ("unfade", "MIWAE"):
            rec = Recoverer({"unfade": "tae", "MIWAE": "miwae"}[method], random_state=seed, verbose=0).fit(holed)
            drawn = pd.concat(list(rec.sample(holed, DRAWS)))
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            ran = {"draws": drawn, "seconds": time.perf_counter() - started, "memory": peak}
        elif method == "shares":  # each column's own
            rng = np.random.default_rng(seed)
            picked = [
                holed.apply(lambda c: c.where(c.notna(), rng.choice(c.dropna().to_numpy(), len(c)))) for _ in range(DRAWS)
            ]
            ran = {"draws": pd.concat(picked), "seconds": time.perf_counter() - started, "memory": 0.0}
        else:
            ran = peers.run_frame(method, holed, DRAWS, seed)
        scores = score_frame(frame, holed, ran["draws"])
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {str(error)[-300:]}"}
    return {**scores, "seconds": ran["seconds"], "memory": ran["memory"]}


def tables(
    folder: Path, names: list[str], settings: list[str], seeds: int, methods: list[str], jobs: int, device: str
) -> None:
    """Run what is not among the results yet."""
    cells = [(n, s, e, m) for e in range(seeds) for n in names for s in settings for m in methods]
    cells = [cell for cell in cells if cell[3] != "ForestDiffusion" or cell[0] in SMALLEST]
    cells = [cell for cell in cells if not _file(*cell).exists()]
    if jobs == 1:
        for cell in cells:
            _run(folder, device, *cell)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=torch.set_num_threads, initargs=(1,)) as processes:
        for done in [processes.submit(_run, folder, device, *cell) for cell in cells]:
            done.result()


def _run(folder: Path, device: str, name: str, setting: str, seed: int, method: str) -> None:
    X = truth(name, folder)
    Y, level = corrupted(X, setting, seed)
    _keep(name, setting, seed, method, _cell(X, Y, level, method, seed, device))


def _keep(name: str, setting: str, seed: int, method: str, cell: dict[str, Any]) -> None:
    print(name, setting, seed, method, json.dumps(cell), flush=True)
    file = _file(name, setting, seed, method)
    file.parent.mkdir(parents=True, exist_ok=True)
    with whole_or_nothing(file) as part:
        part.write_text(json.dumps(cell, indent=0))


def _file(name: str, setting: str, seed: int, method: str) -> Path:
    return RESULTS / ("categories" if name in CATEGORIES else "tables") / name / setting / str(seed) / f"{method}.json"


def found(name: str, setting: str, seed: int, method: str) -> dict[str, Any]:
    """What was measured; nothing where it was not run."""
    file = _file(name, setting, seed, method)
    return json.loads(file.read_text()) if file.exists() else {}


def _cell(X: np.ndarray, Y: np.ndarray, level: np.ndarray, method: str, seed: int, device: str) -> dict[str, Any]:
    try:
        found = METHODS[method](Y, seed, level, device)
        if not np.isfinite(found["draws"]).all():
            raise RuntimeError("draws are not finite")
        scores = score(X, Y, found["draws"])
    except Exception as error:  # a peer that fails has failed, and the others go on
        return {"failed": f"{type(error).__name__}: {str(error)[-300:]}"}
    return {**scores, **found.get("said", {}), "seconds": found["seconds"], "memory": found["memory"]}


def agreement(names: list[str], settings: list[str], seeds: int, method: str = "unfade") -> str:
    """How far the coverage that a fit finds on held-out cells is from that on missing cells, as shares of what is due."""
    far = []
    for cell in (found(n, s, e, method) for n in names for s in settings for e in range(seeds)):
        if "held out: coverage" in cell:
            shares = [cell[f"{kind}: coverage"] / cell[f"{kind}: coverage due"] for kind in ("held out", "missing")]
            far.append(0.9 * (shares[0] - shares[1]))
    if not far:
        return ""
    return (
        f"Coverage of 90 % intervals that {method} finds on held-out cells, less that on missing cells: "
        f"{np.mean(far):+.3f} on average, {np.mean(np.abs(far)):.3f} without sign, over {len(far)} fits.\n"
    )


def report(what: str, names: list[str], settings: list[str], seeds: int, methods: list[str]) -> str:
    """Tables of scores and mean ranks over what was run, as Markdown."""
    kinds = ["CRPS", "energy score"] if what == "tables" else ["log score", "Brier score"]
    text = []
    for setting in settings:
        text += [f"## {setting}", "", "| | " + " | ".join(methods) + " |", "|---" * (len(methods) + 1) + "|"]
        ranks: dict[str, list[list[float]]] = {kind: [] for kind in kinds}
        for name in names:
            cells = [[found(name, setting, seed, m) for seed in range(seeds)] for m in methods]
            text.append(f"| {name} | " + " | ".join(_shown(c, kinds[0]) for c in cells) + " |")
            for kind, kept in ranks.items():  # mask by mask, among the methods that were run on it; failed is last
                for mask in zip(*cells, strict=True):
                    values = [cell.get(f"missing: {kind}", np.inf) if cell else np.nan for cell in mask]
                    kept.append(list(rankdata(values, nan_policy="omit")))
        for kind, kept in ranks.items():
            text.append(f"| mean rank, {kind} | " + " | ".join(f"{r:.1f}" for r in np.nanmean(kept, 0)) + " |")
        for cells_of in ("missing", "observed") if setting == "noise" else ("missing",):
            for key in ("RMSE", "CRPS", "coverage", "coverage due") if what == "tables" else ():
                text.append(_mean_line(f"{cells_of}: {key}", names, setting, seeds, methods))
        text += [_mean_line(key, names, setting, seeds, methods) for key in ("seconds", "memory")]
        text.append("")
    return "\n".join([*text, agreement(names, settings, seeds)])


NOISY = ("mnist", "fashion-mnist")


def noise(folder: Path, device: str) -> str:
    """The level that a default fit learns on 10,000 images, half of the pixels missing, beside the true one.

    Its first stage finds it; what comes after does not change it, and is cut short.
    """
    lines = ["| true sd | " + " | ".join(NOISY) + " |", "|---" * (len(NOISY) + 1) + "|"]
    for level in (0.05, 0.1, 0.2):
        cells = [_once(f"noise-{data}-{level}", partial(_learned, folder, device, data, level)) for data in NOISY]
        lines.append(f"| {level} | " + " | ".join(f"{c['sd']:.4f} ({c['seconds']:.0f} s)" for c in cells) + " |")
    return "\n".join(lines)


def _learned(folder: Path, device: str, data: str, level: float) -> dict[str, float]:
    holed = corrupt(load(data, folder).train[:10_000], 0.5, level, seed=0)
    started = time.perf_counter()
    rec = Recoverer(noise="learn", scaling="joint-interval", bounds=(0, 1), device=device, random_state=0, verbose=0)
    lengths: list[int] = []  # of the stages, as they begin

    def later(progress: Progress) -> bool:
        lengths.append(progress.steps)
        return progress.steps != lengths[0]

    rec.fit(holed, on_step=later)
    return {"sd": float(rec.noise_), "seconds": time.perf_counter() - started}


def toys(seeds: int) -> str:
    """Energy distance to the exact posterior, mean and standard deviation over seeds."""
    (RESULTS / "toys").mkdir(parents=True, exist_ok=True)
    found = [_once(f"toys-{seed}", partial(_toy, seed)) for seed in range(seeds)]
    lines = ["| | energy distance to the exact posterior |", "|---|---|"]
    for name in found[0]:
        values = [scores[name] for scores in found]
        lines.append(f"| {name} | {np.mean(values):.4f} ± {np.std(values, ddof=min(1, seeds - 1)):.4f} |")
    return "\n".join(lines)


def _toy(seed: int) -> dict[str, float]:
    return toy(RESULTS / "toys", seed, 0).scores


def _once(name: str, run: Callable[[], dict[str, float]]) -> dict[str, float]:
    """What was found earlier under this name, or else now."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        found = run()
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_or_nothing(path) as part:
            Path(part).write_text(json.dumps(found))
    return json.loads(path.read_text())


def _mean_line(key: str, names: list[str], setting: str, seeds: int, methods: list[str]) -> str:
    """A mean over all cells that were run and did not fail."""
    line = f"| mean {key} | "
    for method in methods:
        values = [found(name, setting, seed, method).get(key) for name in names for seed in range(seeds)]
        some = [value for value in values if value is not None]
        line += (f"{np.mean(some):.3g}" if some else "") + (f" (of {len(some)})" if len(some) < len(values) else "") + " | "
    return line


def _shown(cells: list[dict[str, Any]], kind: str) -> str:
    asked, cells = len(cells), [cell for cell in cells if cell]
    if not cells:
        return ""
    if any("failed" in cell for cell in cells):
        return "failed"
    value = np.mean([cell[f"missing: {kind}"] for cell in cells])
    spread = np.ptp([cell[f"missing: {kind}"] for cell in cells]) / 2
    coverage = [cell["missing: coverage"] for cell in cells if "missing: coverage" in cell]
    shown = f"{value:.3f} ± {spread:.3f}" if len(cells) > 1 else f"{value:.3f}"
    shown += f" ({np.mean(coverage):.2f})" if coverage else ""
    return shown + (f", {len(cells)} of {asked} masks" if len(cells) < asked else "")


def _some_mean(scores: list[list[float]]) -> np.ndarray:
    """Means over the masks that were run, NaN where none was."""
    return np.array([np.mean(some) if (some := [v for v in row if not np.isnan(v)]) else np.nan for row in scores])


def picture(names: list[str], settings: list[str], seeds: int, methods: list[str], path: Path) -> None:
    """Scores of every method relative to the best of its row, one panel a setting."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(settings), figsize=(5 * len(settings), 0.45 * len(names) + 2), sharey=True)
    for panel, setting in zip(np.atleast_1d(panels), settings, strict=True):
        best = []
        for name in names:
            scores = [[found(name, setting, s, m).get("missing: CRPS", np.nan) for s in range(seeds)] for m in methods]
            best.append(_some_mean(scores) / np.nanmin(_some_mean(scores)))
        for method, marker, ratio in zip(methods, cycle("os^vDPX<>*h"), np.array(best).T, strict=False):
            first = method == methods[0]
            panel.plot(
                ratio, range(len(names)), marker, label=method, alpha=1.0 if first else 0.6, zorder=3 if first else 2
            )
        panel.set_title(setting)
        panel.set_xlim(0.97, 2.2)
        panel.set_xlabel("CRPS on missing cells / best")
        panel.axvline(1, color="grey", lw=0.8, zorder=1)
        panel.grid(axis="y", alpha=0.3)
    np.atleast_1d(panels)[0].set_yticks(range(len(names)), names)
    np.atleast_1d(panels)[0].invert_yaxis()
    handles, labels = np.atleast_1d(panels)[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=5)
    figure.tight_layout(rect=(0, 0.12, 1, 1))
    figure.savefig(path, dpi=110)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["tables", "categories", "images", "noise", "toys"])
    parser.add_argument("--data-dir", type=Path, help="folder with the tables as NAME.csv.gz, or the paper's data sets")
    parser.add_argument("--tables", nargs="*", choices=[*TABLES, *CATEGORIES])
    parser.add_argument("--settings", nargs="*", default=list(SETTINGS), choices=SETTINGS)
    parser.add_argument("--methods", nargs="*", choices=[*METHODS, "shares", *FOR_IMAGES])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="of unfade's own methods")
    parser.add_argument("--schedule", default="board", choices=list(SCHEDULES), help="of images")
    parser.add_argument("--only", default="", help="of images: a pattern of settings, such as 'mnist, 50%%'")
    parser.add_argument("--report", action="store_true", help="run nothing, write tables of what was run")
    chosen = parser.parse_args()
    if chosen.what == "images":
        methods, where = chosen.methods or list(FOR_IMAGES), RESULTS / f"images-{chosen.schedule}"
        how = chosen.data_dir, chosen.schedule, chosen.device, chosen.seeds, methods, chosen.only, where
        return print(images(*how, run=not chosen.report))
    if chosen.what in ("noise", "toys"):
        text = toys(chosen.seeds) if chosen.what == "toys" else noise(chosen.data_dir, chosen.device)
        (RESULTS / f"{chosen.what}.md").write_text(text)
        return print(text)
    numbers = chosen.what == "tables"
    names = chosen.tables or list(TABLES if numbers else CATEGORIES)
    methods = chosen.methods or (list(METHODS) if numbers else FOR_CATEGORIES)
    if chosen.report:
        settings = chosen.settings if numbers else ["MCAR"]
        text = report(chosen.what, names, settings, chosen.seeds, methods)
        (RESULTS / f"{chosen.what}.md").write_text(text)
        if numbers:
            picture(names, settings, chosen.seeds, methods, RESULTS / "tables.png")
        print(text)
    elif numbers:
        tables(chosen.data_dir, names, chosen.settings, chosen.seeds, methods, chosen.jobs, chosen.device)
    else:
        categories(chosen.data_dir, names, chosen.seeds, methods)


if __name__ == "__main__":
    main()
