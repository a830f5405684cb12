"""What notebooks show: draws as a small table with bands, a fitted model as a few facts."""

import html
from collections.abc import Sequence
from typing import Any

import numpy as np

from unfade.data.columns import Column, value_of
from unfade.inference.fitted_model import FittedModel

ROWS, COLUMNS = 5, 8  # that a table of draws shows
_CELL = "padding:.2em .7em;text-align:right;white-space:nowrap"
_TRACK = "display:inline-block;position:relative;width:5em;height:.5em;background:#e4eaee;border-radius:.2em"
_BAND = "position:absolute;top:0;bottom:0;background:#0072B2;border-radius:.2em"


def draws_html(values: np.ndarray, columns: Sequence[Column] | None, observed: np.ndarray | None) -> str | None:
    """Write the first rows of draws (draws, samples, columns): observed values, or the 90 % interval and its band.

    None for images, which have no such table.
    """
    if values.ndim != 3:
        return None
    used = list(columns or (Column(str(j), "continuous") for j in range(values.shape[-1])))[:COLUMNS]
    seen = np.zeros(values.shape[1:], bool) if observed is None else observed
    heads = "".join(f'<th style="{_CELL}">{html.escape(str(column.name))}</th>' for column in used)
    lines = []
    for row in range(min(ROWS, values.shape[1])):
        cells = "".join(_cell(values[:, :, j], row, bool(seen[row, j]), column) for j, column in enumerate(used))
        lines.append(f'<tr><th style="{_CELL}">{row}</th>{cells}</tr>')
    sizes = f"{len(values)} completed data sets of {values.shape[1]:,} rows and {values.shape[2]:,} columns"
    part = "" if values.shape[1] <= ROWS and values.shape[2] <= COLUMNS else ", of which the first are shown"
    words = "Bands: 90 % of the draws, within the range of the column."
    return (
        f'<table style="border-collapse:collapse"><thead><tr><th style="{_CELL}"></th>{heads}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table><p>{sizes}{part}. {words}</p>"
    )


def _cell(draws: np.ndarray, row: int, seen: bool, column: Column) -> str:
    """Write a cell: an observed value, else its interval with a band, or its most frequent categories."""
    own = draws[:, row]
    if np.isnan(own).any():
        text = "missing" if column.kind != "passthrough" else "unchanged"
    elif (own == own[0]).all():
        text = _short(own[0], column) if seen else f"<b>{_short(own[0], column)}</b>"
    elif column.discrete:
        codes, counts = np.unique(own, return_counts=True)
        best = np.argsort(-counts, kind="stable")[:2]
        text = "<b>" + ", ".join(f"{_short(codes[i], column)} {counts[i] / len(own):.0%}" for i in best) + "</b>"
    else:
        low, high = np.quantile(own, [0.05, 0.95], method="inverted_cdf")
        least, most = np.nanmin(draws), np.nanmax(draws)
        left, width = 100 * (low - least) / (most - least), 100 * (high - low) / (most - least)
        band = f'<span style="{_BAND};left:{left:.0f}%;width:{max(2.0, width):.0f}%"></span>'
        text = f'<b>{_short(low, column)} to {_short(high, column)}</b><br><span style="{_TRACK}">{band}</span>'
    return f'<td style="{_CELL}">{text}</td>'


def _short(code: float, column: Column) -> str:
    value = value_of(code, column)
    return html.escape(f"{value:.4g}" if isinstance(value, float) else str(value))


def fitted_html(model: FittedModel) -> str:
    """Write a fitted model as a small table of facts."""
    kinds = [column.kind for column in model.columns or ()]
    count = "numbers" if not kinds else ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    noise = "none: observed cells are exact" if model.noise is None or not np.any(model.noise) else _levels(model.noise)
    facts = {"columns": count, "noise (standard deviation)": noise}
    if model.histories:
        facts["training"] = f"{sum(history.seconds for history in model.histories):.1f} s"
    if model.held_out is not None and len(numbers := model.held_out.numbers()):
        shares = numbers.covered(0.9).mean(), numbers.due(0.9)
        facts["coverage of 90 % intervals"] = (
            f"{shares[0]:.1%} of {len(numbers):,} held-out cells (nominal {shares[1]:.1%})"
        )
    lines = "".join(f"<tr><th>{name}</th><td>{html.escape(value)}</td></tr>" for name, value in facts.items())
    return f"<table>{lines}</table>"


def _levels(noise: Any) -> str:
    levels = np.atleast_1d(noise)
    return f"{levels.min():.3g}" if len(levels) == 1 else f"{levels.min():.3g} to {levels.max():.3g}"
