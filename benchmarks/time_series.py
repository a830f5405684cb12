"""The series of TSI-Bench in its metric: `python benchmarks/time_series.py --data-dir FOLDER`, then `--report`.

Du et al. 2024 (arXiv 2406.12747). ETT_h1: months 1 to 14 to train, 15 to 19 to validate, the others to test, windows of 48
hours; Italy Air: 60, 20 and 20 % of the rows, windows of 12 hours, in which -200 (not measured) stays a value, as there.
Windows do not overlap, each is a series of its own, columns are standardised by the training part. Cells are hidden as
PyGrinder does (our seeds): single cells, blocks of 6 steps x 6 columns (4 x 4), runs of 36 steps (8) of a column, in the
training part too; the methods see what is left. MAE of the mean, CRPS, coverage of the central 90 % (ties broken at random)
and the energy score of a window's hidden cells over the root of their number, on the hidden cells of the test part
(`--part validation`: of the validation part). FOLDER holds ETTh1.csv.gz and AirQualityUCI.csv.gz.
"""

import argparse
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from boards import parser_of, run_all, written
from matplotlib.figure import Figure
from report import markdown, mean_and_spread
from store import Cell, found

from unfade import Recoverer
from unfade.diagnostics.series import draw_series, stretch
from unfade.metrics import coverage_due, covered, crps, energy_score

DRAWS = 50
PUBLISHED = {  # MAE: the best method with networks, and linear interpolation
    "ETT_h1": {"point 0.1": (0.144, 0.197), "point 0.5": (0.223, 0.267), "point 0.9": (0.507, 0.616),
               "block 0.5": (0.401, 0.527), "run 0.5": (0.558, 0.722)},
    "Italy Air": {"point 0.1": (0.185, 0.135), "point 0.5": (0.279, 0.214), "point 0.9": (0.454, 0.481),
                  "block 0.5": (0.404, 0.377), "run 0.5": (0.377, 0.329)},
}  # fmt: skip
SIZES = {"ETT_h1": (48, 6, 0.36, 36), "Italy Air": (12, 4, 0.07, 8)}  # window, block, its factor, run
SETTINGS = list(PUBLISHED["ETT_h1"])
LAST = ("CRPS", "coverage", "nominal", "energy")
METHODS = ["unfade", "unfade, fitted to both", "linear interpolation", "seasonal interpolation"]


def parts(name: str, folder: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Read training, validation and test part, (windows, steps, columns), standardised, and the times of their steps."""
    if name == "ETT_h1":
        table = pd.read_csv(folder / "ETTh1.csv.gz", parse_dates=["date"])
        times, values = table["date"], table.drop(columns="date").to_numpy()
        month = table["date"].dt.to_period("M")
        number = pd.factorize(month)[0]
        chosen = [number < 14, (number >= 14) & (number < 19), number >= 19]
    else:
        table = pd.read_csv(folder / "AirQualityUCI.csv.gz")
        times = pd.to_datetime(table["Date"] + " " + table["Time"], dayfirst=True)
        values = table.drop(columns=["Date", "Time"]).to_numpy(float)
        last, place = round(0.2 * len(table)), np.arange(len(table))
        first, second = len(table) - 2 * last, len(table) - last
        chosen = [place < first, (place >= first) & (place < second), place >= second]
    mean, sd, steps = values[chosen[0]].mean(0), values[chosen[0]].std(0), SIZES[name][0]

    def windows(x: np.ndarray) -> np.ndarray:
        return x[: len(x) // steps * steps].reshape(-1, steps, *x.shape[1:])

    standard = (values - mean) / sd
    return [windows(standard[rows]) for rows in chosen], [windows(times.to_numpy()[rows]) for rows in chosen]


def hidden(x: np.ndarray, name: str, setting: str, rng: np.random.Generator) -> np.ndarray:
    """Choose the cells to hide, (windows, steps, columns): `mcar`, `block_missing` or `seq_missing` of PyGrinder."""
    count, steps, columns = x.shape
    kind, rate = setting.split()
    _, side, factor, run = SIZES[name]
    if kind == "point":
        return rng.random(x.shape) < float(rate)
    gone = np.zeros((count, columns, steps), bool)
    if kind == "run":
        for series in rng.choice(count * columns, ceil(count * columns * float(rate) * steps / run), replace=False):
            start = rng.integers(0, steps - run)
            gone[series // columns, series % columns, start : start + run] = True
    else:
        firsts = columns - side + 1
        for block in rng.integers(0, count * firsts, ceil(count * firsts * factor * steps * columns / side**2)):
            start, first = rng.integers(0, steps - side + 1), block % firsts
            gone[block // firsts, first : first + side, start : start + side] = True
    return gone.transpose(0, 2, 1)


def interpolated(y: np.ndarray, base: np.ndarray) -> np.ndarray:
    """Interpolate linearly what differs from the base, column by column in each window; the base where nothing is seen."""
    filled, place = np.array(base), np.arange(y.shape[1])
    for window, column in np.ndindex(len(y), y.shape[2]):
        far = y[window, :, column] - base[window, :, column]
        if (seen := ~np.isnan(far)).any():
            filled[window, :, column] += np.interp(place, place[seen], far[seen])
    return filled


def by_hour(train: np.ndarray, times: list[np.ndarray], which: int) -> np.ndarray:
    """Average each column of the training part by the hour, for the windows of a part."""
    hours = [pd.DatetimeIndex(part.ravel()).hour.to_numpy() for part in (times[0], times[which])]
    means = np.stack([np.nanmean(train.reshape(-1, train.shape[-1])[hours[0] == hour], 0) for hour in range(24)])
    return means[hours[1]].reshape(*times[which].shape, -1)


def frame(y: np.ndarray, times: np.ndarray, first: int) -> pd.DataFrame:
    """Make a table of windows, each a series with a number."""
    table = pd.DataFrame(y.reshape(-1, y.shape[-1])).add_prefix("x")
    return table.assign(time=times.ravel(), window=np.repeat(np.arange(len(y)) + first, y.shape[1]))


def recovered(
    given: list[np.ndarray], times: list[np.ndarray], which: int, seed: int, both: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Fit unfade to the training part, or to what is given of both, and recover the other: mean and draws."""
    train, test = frame(given[0], times[0], 0), frame(given[which], times[which], 10**6)
    columns = {name: "continuous" for name in train.columns[:-2]}
    rec = Recoverer(time="time", panel=("window",), kinds=columns, random_state=seed, verbose=0)
    rec.fit(pd.concat([train, test], ignore_index=True) if both else train)
    shape, numbers = given[which].shape, slice(0, given[0].shape[-1])
    mean = rec.transform(test).iloc[:, numbers].to_numpy().reshape(shape)
    return mean, rec.sample(test, DRAWS).values[..., numbers].astype(float).reshape(DRAWS, *shape)


def masked(name: str, setting: str, seed: int, folder: Any) -> tuple[list[np.ndarray], ...]:
    """Read the parts of a table and hide cells: truth, cells hidden, what is given, times."""
    whole, times = parts(name, folder)
    rng = np.random.default_rng(seed)
    masks = [hidden(x, name, setting, rng) for x in whole]
    return whole, masks, [np.where(mask, np.nan, x) for mask, x in zip(masks, whole, strict=True)], times


def result(options: argparse.Namespace, cell: Cell) -> dict[str, Any]:
    """Run a method on one setting and score it."""
    whole, masks, given, times = masked(cell.table, cell.setting, cell.seed, options.data_dir)
    which = 1 if options.part == "validation" else 2
    truth, cells = whole[which], masks[which]
    if cell.method.startswith("unfade"):
        mean, draws = recovered(given, times, which, cell.seed, both=cell.method != "unfade")
        return {
            "MAE": float(np.abs(mean - truth)[cells].mean()),
            "hidden": float(cells.mean()),
            **scores(draws, truth, cells),
        }
    base = np.zeros_like(truth) if cell.method == "linear interpolation" else by_hour(given[0], times, which)
    far = np.abs(interpolated(given[which], base) - truth)[cells]
    return {"MAE": float(far.mean()), "hidden": float(cells.mean())}


def scores(draws: np.ndarray, truth: np.ndarray, cells: np.ndarray) -> dict[str, float]:
    """Score draws on the hidden cells: CRPS, coverage, energy score of windows."""
    x, t, chosen = (torch.from_numpy(np.ascontiguousarray(part)).flatten(-2) for part in (draws, truth, cells))
    chance = torch.Generator().manual_seed(0)
    apart, true = (part + 1e-6 * torch.rand(part.shape, generator=chance, dtype=part.dtype) for part in (x, t))
    energy = energy_score(x, t, chosen) / chosen.sum(1).clamp(min=1).sqrt()
    return {
        "CRPS": float(crps(x, t)[chosen].mean()),
        "coverage": float(covered(apart, true, 0.9)[chosen].double().mean()),
        "nominal": coverage_due(0.9, len(draws)),
        "energy": float(energy[chosen.any(1)].mean()),
    }


def table(options: argparse.Namespace) -> str:
    """Write what was run, beside the published figures."""
    header = [
        "",
        "unfade: MAE",
        "fitted to both",
        "linear, run here",
        "seasonal, run here",
        "best network",
        "linear, published",
    ]
    rows = []
    for name in PUBLISHED:
        for setting in SETTINGS:
            runs = {m: [found(Cell(board(options), name, setting, s, m)) for s in range(options.seeds)] for m in METHODS}
            runs = {m: [each for each in run if "MAE" in each] for m, run in runs.items()}
            shown = [mean_and_spread([each["MAE"] for each in run]) if run else "" for run in runs.values()]
            own = runs["unfade"]
            published = [f"{x:.3f}" for x in PUBLISHED[name][setting]]
            last = [f"{np.mean([each[key] for each in own]):.3f}" for key in LAST if own]
            last += [f"{np.mean([each['coverage'] for each in runs[METHODS[1]]]):.3f}" if runs[METHODS[1]] else ""]
            last += [f"{np.mean([each['cpu_seconds'] for each in own]):.0f}"] if own else []
            rows.append([f"{name}, {setting}", *shown, *published, *last])
    return markdown([*header, *LAST, "coverage, fitted to both", "CPU seconds"], rows)


def picture(folder: Any, target: Any) -> None:
    """Fill the holes of 4,000 hours of Italy Air, -200 as missing, and draw the stretch with most of them."""
    table = pd.read_csv(folder / "AirQualityUCI.csv.gz").iloc[:4000]
    times = pd.to_datetime(table["Date"] + " " + table["Time"], dayfirst=True)
    table = table.drop(columns=["Date", "Time"]).assign(time=times)
    kinds = dict.fromkeys(table.columns[:-1], "continuous")
    rec = Recoverer(time="time", missing=[-200], kinds=kinds, random_state=0, verbose=0).fit(table)
    data, figure = rec.model_.read(table), Figure(figsize=(9, 7), layout="constrained")
    draw_series(figure, data, rec.sample(table, DRAWS).values, *stretch(data, 200))
    figure.savefig(target, dpi=80)


def board(options: argparse.Namespace) -> str:
    """Name the board: that of the validation part is another."""
    return "time_series" if options.part == "test" else "time_series_validation"


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = parser_of(__doc__, METHODS)
    parser.add_argument("--part", choices=["test", "validation"], default="test")
    parser.add_argument("--tables", nargs="*", choices=list(PUBLISHED), default=list(PUBLISHED))
    parser.add_argument("--picture", type=Path, help="only draw the holes of Italy Air itself, filled, into this file")
    options = parser.parse_args(arguments)
    if options.picture:
        return picture(options.data_dir, options.picture)
    if not options.report:
        cells = [
            Cell(board(options), name, setting, seed, method)
            for seed in range(options.seeds)
            for name in options.tables
            for setting in SETTINGS
            for method in options.methods
        ]
        run_all(cells, 1, lambda cell: result(options, cell))
    written(board(options), table(options))


if __name__ == "__main__":
    main()
