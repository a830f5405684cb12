"""The one writer of tables and pictures for all boards: means over seeds with their spread, and ranks."""

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata
from store import Cell, found


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table as Markdown."""
    lines = [list(header), ["---"] * len(header), *map(list, rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def mean_and_spread(values: Sequence[float], digits: int = 3) -> str:
    """Write a mean over seeds, and half of the range where there are several."""
    spread = f" ± {np.ptp(values) / 2:.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{spread}"


def entry(results: Sequence[dict[str, Any]], score: str, coverage: str = "", digits: int = 3) -> str:
    """Write a method's results over seeds: mean, spread, coverage in brackets, and how many seeds were run if not all."""
    run = [result for result in results if result]
    if not run:
        return ""
    if any("failed" in result for result in run):
        return "stopped" if all("TooSlow" in result.get("failed", "TooSlow") for result in run) else "failed"
    shown = mean_and_spread([result[score] for result in run], digits)
    if coverage and coverage in run[0]:
        shown += f" ({np.mean([result[coverage] for result in run]):.2f})"
    return shown + (f", {len(run)} of {len(results)} seeds" if len(run) < len(results) else "")


def mean_ranks(cases: Sequence[Sequence[dict[str, Any]]], score: str) -> np.ndarray:
    """Average each method's rank over cases, among the methods that were run on it; one that failed is last."""
    values = [[result.get(score, np.inf) if result else np.nan for result in case] for case in cases]
    ranks = np.array([rankdata(case, nan_policy="omit") for case in values])
    run = ~np.isnan(ranks)
    return np.where(run.any(0), np.where(run, ranks, 0).sum(0) / np.maximum(run.sum(0), 1), np.nan)


def mean_line(key: str, cases: Sequence[Sequence[dict[str, Any]]], geometric: bool = False) -> list[str]:
    """Write one row: the mean of a number per method over what was run and did not fail, and of how many."""
    shown = [f"{'geometric ' if geometric else ''}mean {key}"]
    for results in zip(*cases, strict=True):
        some = np.array([result[key] for result in results if result.get(key) is not None and "failed" not in result])
        mean = np.exp(np.log(some).mean()) if geometric and len(some) else some.mean() if len(some) else None
        short = f" (of {len(some)})" if len(some) < len(results) else ""
        shown.append("" if mean is None else f"{mean:.3g}{short}")
    return shown


Case = list[dict[str, Any]]  # the results of all methods on one table and seed


def by_case(board: str, tables: Sequence[str], setting: str, seeds: int, methods: Sequence[str]) -> list[Case]:
    """Read the results of all methods, table by table and seed by seed."""
    return [[found(Cell(board, t, setting, s, m)) for m in methods] for t in tables for s in range(seeds)]


def setting_table(
    board: str, tables: Sequence[str], setting: str, seeds: int, methods: Sequence[str], scores: Sequence[str],
    means: Sequence[str],
) -> str:  # fmt: skip
    """Write one setting: a row per table with the first score, mean ranks by every score, and means of other numbers."""
    rows = []
    for table in tables:
        each = [[found(Cell(board, table, setting, seed, method)) for seed in range(seeds)] for method in methods]
        rows.append([table, *(entry(results, scores[0], scores[0].split(":")[0] + ": coverage") for results in each)])
    cases = by_case(board, tables, setting, seeds, methods)
    rows += [
        [f"mean rank, {score}", *("" if np.isnan(rank) else f"{rank:.1f}" for rank in mean_ranks(cases, score))]
        for score in scores
    ]
    rows += [mean_line(key, cases) for key in means]
    rows += [mean_line("cpu_seconds", cases, geometric=True), mean_line("memory", cases)]
    return f"## {setting}\n\n" + markdown(["", *methods], rows) + "\n"


def picture(
    path: Path, board: str, tables: Sequence[str], settings: Sequence[str], seeds: int, methods: Sequence[str], score: str
) -> None:
    """Draw the score of every method relative to the best of its row, one panel per setting."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5 * len(settings), 0.45 * len(tables) + 2), layout="constrained")
    panels = np.atleast_1d(figure.subplots(1, len(settings), sharey=True))
    for panel, setting in zip(panels, settings, strict=True):
        cases = by_case(board, tables, setting, seeds, methods)
        values = np.array([[result.get(score, np.nan) for result in case] for case in cases], dtype=float)
        values = np.ma.masked_invalid(values.reshape(len(tables), seeds, -1)).mean(1)
        for number, (method, marker) in enumerate(zip(methods, cycle("os^vDPX<>*h"), strict=False)):
            ratio = values[:, number] / values.min(1)
            first = number == 0
            panel.plot(ratio, range(len(tables)), marker, label=method, alpha=1.0 if first else 0.6, zorder=2 + first)
        panel.set(title=setting, xlim=(0.97, 2.2), xlabel=f"{score} / best")
        panel.axvline(1, color="grey", lw=0.8, zorder=1)
        panel.grid(axis="y", alpha=0.3)
    panels[0].set_yticks(range(len(tables)), tables)
    panels[0].invert_yaxis()
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    figure.savefig(path, dpi=110)
