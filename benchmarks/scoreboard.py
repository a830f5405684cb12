"""Methods side by side on real tables: `python benchmarks/scoreboard.py tables --data-dir FOLDER`, then `--report`.

Holes are cut into complete tables, the truth reaches the scorer only, all draw as often. Every cell (table, setting,
seed, method) is a line of build/scoreboard/tables.json; what is there is not run again. `--report` prints
what that file holds.
"""

import argparse
import json
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import peers
import torch

from unfade import Recoverer
from unfade.corruption import mask_at_random, mask_given_others
from unfade.evaluation import evaluate
from unfade.files import read_table
from unfade.storage import whole_or_nothing

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
SETTINGS = (
    "MCAR",
    "MAR",
    "noise",
)  # 30 % missing in each; noise: of 0.3 column sds on what is observed, told to those that can use it
RESULTS = Path("build/scoreboard/tables.json")


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

    def run(Y: np.ndarray, seed: int, level: np.ndarray) -> dict[str, Any]:
        started = time.perf_counter()
        noise = level if level.any() else None
        rec = Recoverer(method, noise=noise, random_state=seed, verbose=0, **parameters).fit(Y)
        draws = rec.sample(Y, DRAWS).values
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return {"draws": draws, "seconds": time.perf_counter() - started, "memory": peak}

    return run


def peer(name: str) -> Callable[..., dict[str, Any]]:
    """A peer; the noise is told to those that can use it, in units of the column's sd."""

    def run(Y: np.ndarray, seed: int, level: np.ndarray) -> dict[str, Any]:
        centre, scale = np.nanmean(Y, 0), np.nanstd(Y, 0)
        found = peers.run(name, (Y - centre) / scale, DRAWS, seed, float(np.mean(level / scale)))
        return {**found, "draws": found["draws"] * scale + centre}

    return run


METHODS = {
    "unfade": ours("tae"),
    "MIWAE": ours("miwae"),
    **{name: peer(name) for name in (*peers.PEERS, *peers.R_PEERS)},
}


def score(X: np.ndarray, Y: np.ndarray, draws: np.ndarray) -> dict[str, float]:
    """On missing cells, and where there is noise on observed ones too, in sds of the clean observed values."""
    seen = ~np.isnan(Y)
    unit = np.array([X[seen[:, j], j].std() for j in range(X.shape[1])])
    result = {}
    for cells in ("missing", "observed"):
        found = evaluate(draws, X, seen, cells=cells, unit=unit)
        result |= {
            f"{cells}: CRPS": found.crps,
            f"{cells}: energy score": found.energy_score,
            f"{cells}: RMSE": found.rmse,
            f"{cells}: coverage": found.coverage,
            f"{cells}: coverage due": found.coverage_due,
        }
    return result


def tables(folder: Path, names: list[str], settings: list[str], seeds: int, methods: list[str]) -> None:
    """Run what is not among the results yet."""
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for seed in range(seeds):
        for name in names:
            X = truth(name, folder)
            for setting in settings:
                Y, level = corrupted(X, setting, seed)
                for method in methods:
                    key = f"{name}; {setting}; {seed}; {method}"
                    if key in results:
                        continue
                    results[key] = _cell(X, Y, level, method, seed)
                    print(key, json.dumps(results[key]), flush=True)
                    with whole_or_nothing(RESULTS) as part:
                        part.write_text(json.dumps(results, indent=0))


def _cell(X: np.ndarray, Y: np.ndarray, level: np.ndarray, method: str, seed: int) -> dict[str, Any]:
    try:
        found = METHODS[method](Y, seed, level)
        if not np.isfinite(found["draws"]).all():
            raise RuntimeError("draws are not finite")
        scores = score(X, Y, found["draws"])
    except Exception as error:  # a peer that fails has failed, and the others go on
        return {"failed": f"{type(error).__name__}: {str(error)[-300:]}"}
    return {**scores, "seconds": found["seconds"], "memory": found["memory"]}


def report(names: list[str], settings: list[str], seeds: int, methods: list[str]) -> str:
    """Tables of CRPS and mean ranks over what all methods have run."""
    results = json.loads(RESULTS.read_text())
    text = []
    for setting in settings:
        text += [f"## {setting}", "", "| | " + " | ".join(methods) + " |", "|---" * (len(methods) + 1) + "|"]
        ranks: dict[str, list[list[float]]] = {"CRPS": [], "energy score": []}
        for name in names:
            cells = [[results.get(f"{name}; {setting}; {s}; {m}", {}) for s in range(seeds)] for m in methods]
            if not any(any(c) for c in cells):
                continue
            text.append(f"| {name} | " + " | ".join(_shown(c) for c in cells) + " |")
            for kind, kept in ranks.items():
                values = [np.mean([c.get(f"missing: {kind}", np.inf) for c in each]) for each in cells]
                kept.append(list(np.argsort(np.argsort(values)) + 1.0))
        for kind, kept in ranks.items():
            text.append(f"| mean rank, {kind} | " + " | ".join(f"{r:.1f}" for r in np.mean(kept, 0)) + " |")
        text.append("")
    return "\n".join(text)


def _shown(cells: list[dict[str, Any]]) -> str:
    if not all(cells):
        return ""
    if any("failed" in cell for cell in cells):
        return "failed"
    crps, coverage, seconds = (
        np.mean([cell[key] for cell in cells]) for key in ("missing: CRPS", "missing: coverage", "seconds")
    )
    return f"{crps:.3f} ({coverage:.2f}, {seconds:.0f} s)"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["tables"])
    parser.add_argument("--data-dir", type=Path, help="folder with the tables as NAME.csv.gz")
    parser.add_argument("--tables", nargs="*", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--settings", nargs="*", default=list(SETTINGS), choices=SETTINGS)
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--report", action="store_true", help="print the tables of what was run")
    chosen = parser.parse_args()
    if chosen.report:
        print(report(chosen.tables, chosen.settings, chosen.seeds, chosen.methods))
    else:
        tables(chosen.data_dir, chosen.tables, chosen.settings, chosen.seeds, chosen.methods)


if __name__ == "__main__":
    main()
