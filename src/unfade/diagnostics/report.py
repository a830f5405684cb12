"""The report: verdicts and pictures as one HTML file that needs no network."""

import base64
import datetime
import html
import io
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import fields
from importlib.metadata import version
from typing import Any

import numpy as np

from unfade import storage
from unfade.data.columns import TEMPORAL, Column, value_of
from unfade.data.dataset import Dataset
from unfade.diagnostics.checks import Diagnosis, diagnose, large_images
from unfade.diagnostics.images import draw_gallery, shape_of
from unfade.diagnostics.plots import pattern
from unfade.diagnostics.predictions import outliers
from unfade.inference.draws import Draws
from unfade.inference.fitted_model import FittedModel
from unfade.methods.parameters import Parameters

_ROWS = 2000  # rows that pictures of values are made from
_CELLS = 10_000  # cells that are predicted from the rest of their row
_COLUMNS = 24  # columns that are drawn one by one
_SIGNS = {"green": "&#10003;", "amber": "!", "red": "&#10007;"}
_SEEN, _DRAWN = "#0072B2", "#E69F00"  # apart for colour-blind eyes too (Okabe and Ito)
_STYLE = """
:root { --green: #00785a; --amber: #a86400; --red: #b03a00; }
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 60rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; margin-bottom: 0; } h2 { font-size: 1.2rem; margin-top: 2rem; border-bottom: 1px solid #ccc; }
img { max-width: 100%; height: auto; } figure { margin: 1rem 0; } figcaption { color: #555; font-size: .9rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; }
td, th { padding: .2rem .6rem; text-align: left; border-bottom: 1px solid #ddd; } td.n { text-align: right; }
ul.verdicts { list-style: none; padding: 0; } ul.verdicts li { margin: .5rem 0; padding-left: 2.2rem; position: relative; }
.sign { position: absolute; left: 0; top: .1rem; width: 1.5rem; height: 1.5rem; border-radius: 50%; color: #fff;
  text-align: center; line-height: 1.5rem; font-weight: bold; }
.green .sign { background: var(--green); } .amber .sign { background: var(--amber); } .red .sign { background: var(--red); }
.lead { font-size: 1.1rem; } .quiet { color: #555; }
@media (max-width: 40rem) { figure { overflow-x: auto; } figure img { max-width: none; width: 38rem; } }
@media print { body { max-width: none; } h2, figure, tr { break-inside: avoid; } }
"""
_LEAD = {
    "green": "No check failed.",
    "amber": "Usable with care: read the warnings below.",
    "red": "Do not rely on these results before the red verdicts are resolved.",
}


def write_report(model: FittedModel, X: Any, path: str | os.PathLike[str], draws: Draws | None = None) -> None:
    """Write the report.

    Parameters
    ----------
    model : FittedModel
    X : the data of the fit
    path : path
    draws : Draws of X; None, or fewer than three: draws of some rows are made
    """
    data, draws = model.read(X), None if draws is None or len(draws) < 3 else draws
    found, large = diagnose(model, data), large_images(model)
    rows = np.sort(np.random.default_rng(0).permutation(len(data))[: 6 if large else _ROWS])
    part = data.rows(rows)
    some = model.sample(part, 20, row_ids=rows.tolist()) if draws is None else draws
    values = some.values if draws is None else draws.values[:20, rows]
    table, container = part.table(), part.container
    sections = [_verdicts(found), "" if large else _missingness(found, data), _calibration(found), _columns_table(found)]
    if table.ndim == 2 and _as_image(table) is None:
        columns = container.columns or tuple(Column(str(j), "continuous") for j in range(table.shape[1]))
        sections += [_distributions(table, values, columns), _pairs(table, values, columns)]
        sections += [_surprising(model, data, rows, len(columns)), _noise(found), _links(found)]
    else:
        sections.append(_gallery(table, values))
    sections += [_simple(found), _learning(model), _settings(model)]
    lead = f'<p class="lead {found.level}"><b>{_LEAD[found.level]}</b></p>'
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>unfade: diagnosis</title>'
        f"<style>{_STYLE}</style></head><body><h1>How far to trust these results</h1>{lead}"
        + "".join(sections)
        + "</body></html>"
    )
    with storage.whole_or_nothing(path) as file:
        file.write_text(page, encoding="utf-8")


def _section(title: str, *parts: str) -> str:
    inside = "".join(parts)
    return f"<section><h2>{title}</h2>{inside}</section>" if inside else ""


def _short(value: Any) -> str:
    if isinstance(value, float) and 1e4 <= abs(value) < 1e12:
        return f"{value:.0f}"  # not 1.318e+04
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _text(value: Any) -> str:
    return html.escape(_short(value))


def _table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    if not rows:
        return ""
    top = "".join(f"<th>{_text(head)}</th>" for head in heads)
    body = "".join(
        "<tr>" + "".join(f"<td{' class=n' if isinstance(v, (int, float)) else ''}>{_text(v)}</td>" for v in row) + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _figure(draw: Callable[[Any], None], size: tuple[float, float], says: str, caption: str = "") -> str:
    """Embed a picture; says: its description for readers who cannot see it."""
    from matplotlib.figure import Figure

    figure, file = Figure(figsize=size, layout="constrained"), io.BytesIO()
    draw(figure)
    figure.savefig(file, format="png", dpi=90)
    code = base64.b64encode(file.getvalue()).decode()
    return (
        f'<figure><img alt="{html.escape(says, quote=True)}" src="data:image/png;base64,{code}">'
        f"<figcaption>{html.escape(caption or says)}</figcaption></figure>"
    )


def _label(name: Any, most: int) -> str:
    """Shorten a name for a picture, and escape formulas."""
    return str(name)[:most].replace("$", r"\$")


def _verdicts(found: Diagnosis) -> str:
    lines = "".join(
        f'<li class="{v.level}"><span class="sign" aria-hidden="true">{_SIGNS[v.level]}</span><b>{_text(v.what)}</b> '
        f'<span class="quiet">({v.level})</span>: {_text(v.says)} {f"<i>{_text(v.todo)}</i>" if v.todo else ""}</li>'
        for v in found.verdicts
    )
    words = "Each verdict rests on observed cells that were hidden from training and predicted."
    return _section("Verdicts", f'<p class="quiet">{words}</p><ul class="verdicts">{lines}</ul>')


def _missingness(found: Diagnosis, data: Dataset) -> str:
    cells = found.cells
    missing = np.isnan(cells.seen)
    missing[cells.rows, cells.columns] = False
    used = [j for j in range(missing.shape[1]) if not (cells.kinds and cells.kinds[j].kind == "passthrough")]
    share, names = missing.mean(0), [cells.name(j) for j in range(missing.shape[1])]
    share[np.setdiff1d(np.arange(len(share)), used)] = 0.0
    missing = missing[:, used]
    words = f"<p>{len(missing):,} rows of {missing.shape[1]:,} {'columns' if cells.kinds else 'entries'}; "
    words += f"{missing.mean():.1%} of all cells are missing, {(~missing.any(1)).mean():.1%} of the rows are complete.</p>"
    worst = [j for j in np.argsort(-share, kind="stable")[:40] if share[j] > 0]
    if not worst:
        return _section("Missing cells", words)

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.barh(range(len(worst)), share[worst][::-1], color=_SEEN)
        axes.set_yticks(range(len(worst)), [_label(names[j], 30) for j in worst][::-1])
        axes.set_xlabel("share of cells missing")
        axes.set_xlim(0, max(0.1, share.max() * 1.05))

    says = f"Share of missing cells by column, most first; {cells.name(worst[0])} has {share[worst[0]]:.0%}."
    kinds = "Patterns of missing cells: rows of each left, missing columns right, missing cells of each column below."
    few, size = len(names) <= 30 and len(data.obs.event_shape) == 1, (1.2 + 0.45 * len(names), 3.6)
    more = _figure(lambda figure: pattern(data, figure.subplots(), 12), size, kinds) if few else ""
    return _section("Missing cells", words, _figure(draw, (7, 0.5 + 0.24 * len(worst)), says), more)


def _calibration(found: Diagnosis) -> str:
    numbers = found.cells.numbers()
    if len(numbers) < 20:
        return ""
    places, bins = numbers.places(), 10
    counts = np.histogram(places, bins, (0, 1))[0] / len(places)
    band = 2 * np.sqrt(1 / bins * (1 - 1 / bins) / len(places))

    def draw(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        left.bar(np.arange(bins) / bins + 0.05, counts, 0.09, color=_SEEN)
        for edge in (1 / bins - band, 1 / bins + band):
            left.axhline(edge, color="#444", ls="--", lw=1)
        left.set_xlabel("rank of the held-out value among its draws")
        left.set_ylabel("share of cells")
        nominal = np.linspace(0.1, 0.9, 9)
        shares = [numbers.covered(level).mean() for level in nominal]
        right.plot([0, 1], [0, 1], color="#999")
        right.plot([numbers.due(level) for level in nominal], shares, "o-", color=_SEEN)
        right.set_xlabel("nominal coverage")
        right.set_ylabel("empirical coverage")

    says = (
        "Left: ranks of held-out values among their draws; uniform is right, high ends mean too narrow draws; chance "
        "stays between the dashed lines. Right: empirical coverage of central intervals; on the line is nominal."
    )
    return _section("Coverage of intervals", _figure(draw, (9, 3.2), says))


def _columns_table(found: Diagnosis) -> str:
    rows = [
        (c.column, c.cells, f"{c.coverage:.1%}", f"{c.low:.0%} to {c.high:.0%}", c.finding, round(c.crps, 3))
        if np.isfinite(c.coverage)
        else (c.column, c.cells, "", "", c.finding, "")
        for c in found.columns[:200]
    ]
    heads = ("column", "held-out cells", "coverage of 90 % intervals", "within tolerance", "finding", "CRPS (sds)")
    return _section("Coverage per column", _table(heads, rows))


def _distributions(table: np.ndarray, values: np.ndarray, columns: Sequence[Column]) -> str:
    """Draw observed and imputed values of the columns with most missing cells."""
    gone = np.isnan(table)
    filled = (gone & np.isfinite(values[0])).any(0)
    order = [j for j in np.argsort(-gone.sum(0), kind="stable") if columns[j].kind != "passthrough" and filled[j]]
    shown = order[:_COLUMNS]
    if not shown:
        return ""
    across = min(4, len(shown))
    down = -(-len(shown) // across)

    def draw(figure: Any) -> None:
        panels = np.ravel(figure.subplots(down, across, squeeze=False))
        for panel in panels[len(shown) :]:
            panel.axis("off")
        for panel, j in zip(panels, shown, strict=False):
            _two(panel, table[~gone[:, j], j], values[:, gone[:, j], j].ravel(), columns[j])
        panels[0].legend(fontsize=7)

    more = f" Of {len(order)} columns with missing cells, the {len(shown)} with most." if len(order) > len(shown) else ""
    says = f"Distribution of observed values (filled) and of draws of missing ones (line), per column.{more}"
    caption = f"{says} They need not agree: missing values may differ from observed ones."
    return _section("Observed and drawn values", _figure(draw, (9, 1.9 * down + 0.3), says, caption))


def _two(panel: Any, seen: np.ndarray, drawn: np.ndarray, column: Column) -> None:
    panel.set_title(_label(column.name, 26), fontsize=9)
    panel.tick_params(labelsize=7)
    panel.set_yticks([])
    drawn = drawn[np.isfinite(drawn)]
    if column.discrete or (len(np.unique(seen)) <= 12 and np.isin(drawn, seen).all()):
        codes = np.unique(np.concatenate([seen, drawn]))[:12]
        place = np.arange(len(codes))
        panel.bar(place - 0.2, [(seen == c).mean() if len(seen) else 0 for c in codes], 0.4, color=_SEEN, label="observed")
        panel.bar(place + 0.2, [(drawn == c).mean() if len(drawn) else 0 for c in codes], 0.4, color=_DRAWN, label="drawn")
        names = [str(value_of(c, column)) if column.discrete else _moment(c, column) or f"{c:g}" for c in codes]
        panel.set_xticks(place, [_label(name, 8) for name in names], rotation=45 if len(names) > 4 else 0, fontsize=6)
        return
    both = np.concatenate([seen, drawn])
    low, high = np.quantile(both, [0.005, 0.995]) if len(both) else (0, 1)
    edges = np.linspace(low, high if high > low else low + 1, 25)
    _few_ticks(panel.xaxis, column)
    panel.hist(np.clip(seen, *edges[[0, -1]]), edges, density=True, color=_SEEN, alpha=0.6, label="observed")
    panel.hist(np.clip(drawn, *edges[[0, -1]]), edges, density=True, histtype="step", lw=1.6, color=_DRAWN, label="drawn")


def _moment(code: float, column: Column) -> str:
    """Write a date, time of day or duration; empty for other columns."""
    if column.kind == "date":
        return str(np.datetime64(int(code), "us").astype("datetime64[D]"))
    return str(datetime.timedelta(seconds=int(code / 1e6))) if column.kind in TEMPORAL else ""


def _few_ticks(axis: Any, column: Column) -> None:
    """Reduce the ticks of an axis to those that fit, with dates and times written as such."""
    axis.get_major_locator().set_params(nbins=3)
    if column.kind in TEMPORAL:
        axis.set_major_formatter(lambda code, _: _moment(code, column))


def _pairs(table: np.ndarray, values: np.ndarray, columns: Sequence[Column]) -> str:
    """Draw the most correlated pairs of columns: rows observed in both, and rows with a drawn value."""
    numbers = [
        j
        for j, c in enumerate(columns)
        if not c.discrete and c.kind != "passthrough" and len(np.unique(table[~np.isnan(table[:, j]), j])) > 1
    ]
    numbers = numbers[:60]
    if len(numbers) < 2:
        return ""
    strength = np.nan_to_num(np.abs(np.corrcoef(values[0][:, numbers], rowvar=False)))
    i, j = np.triu_indices(len(numbers), 1)
    best = np.argsort(-strength[i, j])[:4]
    chosen = [(numbers[i[b]], numbers[j[b]]) for b in best]

    def draw(figure: Any) -> None:
        panels = np.ravel(figure.subplots(1, len(chosen), squeeze=False))
        for panel, (a, b) in zip(panels, chosen, strict=True):
            seen = ~np.isnan(table[:, [a, b]]).any(1)
            for where, colour, name in ((~seen, _DRAWN, "a value drawn"), (seen, _SEEN, "both observed")):
                panel.scatter(values[0, where, a], values[0, where, b], s=4, alpha=0.5, color=colour, label=name)
            panel.set_xlabel(_label(columns[a].name, 22), fontsize=8)
            panel.set_ylabel(_label(columns[b].name, 22), fontsize=8)
            _few_ticks(panel.xaxis, columns[a])
            _few_ticks(panel.yaxis, columns[b])
            panel.tick_params(labelsize=7)
        panels[0].legend(fontsize=7)

    says = "The most correlated pairs of columns, in one completed table."
    return _section("Pairs", _figure(draw, (2.4 * len(chosen) + 0.4, 2.6), says))


def _surprising(model: FittedModel, data: Dataset, rows: np.ndarray, columns: int) -> str:
    step = -(-len(rows) * columns // _CELLS)
    rows = rows[::step]
    found = outliers(model, data.rows(rows), most=12, n_draws=50)
    lines = [
        (
            int(rows[s.row]),
            str(s.column),
            s.value,
            s.expected,
            "" if s.low is None else f"{_short(s.low)} to {_short(s.high)}",
        )
        for s in found
        if s.distance > 3
    ]
    among = f" (among {len(rows):,} rows taken at random)" if len(rows) < len(data) else ""
    words = f"<p>Observed cells that the rest of their row does not predict{among}, likely errors first.</p>"
    if not lines:
        return _section("Outliers", "<p>No observed cell is far from its prediction by the rest of its row.</p>")
    return _section("Outliers", words, _table(("row", "column", "value", "expected", "90 % of draws"), lines))


def _noise(found: Diagnosis) -> str:
    rows = [
        (str(n.column), n.sd, n.low, n.high, f"{max(0.0, n.explained):.0%}", "yes" if n.told else "no") for n in found.noise
    ]
    heads = ("column", "noise sd", "low", "high", "explained by other columns", "identified")
    return _section("Noise", _table(heads, rows[:100]))


def _links(found: Diagnosis) -> str:
    rows = [(link.column, link.where, round(abs(link.shift), 2), round(abs(link.z), 1)) for link in found.links[:20]]
    heads = ("missing more often:", "where", "by (sds)", "z")
    return _section("Missingness", _table(heads, rows))


def _simple(found: Diagnosis) -> str:
    rows = [(name, round(score, 4)) for name, score in found.simple.scores.items()]
    words = f"<p>Mean CRPS of {found.simple.cells} held-out cells, in sds (columns or all pixels); lower is better.</p>"
    return _section("Comparison with simple methods", words, _table(("method", "CRPS"), rows))


def _learning(model: FittedModel) -> str:
    stages = [history for history in model.histories if history.steps]
    curves = [(i, name, h.steps, v) for i, h in enumerate(stages, 1) for name, v in h.terms.items()][:16]
    if not curves:
        return ""
    across = min(4, len(curves))
    down = -(-len(curves) // across)

    def draw(figure: Any) -> None:
        panels = np.ravel(figure.subplots(down, across, squeeze=False))
        for panel in panels[len(curves) :]:
            panel.axis("off")
        for panel, (stage, name, steps, values) in zip(panels, curves, strict=False):
            panel.plot(steps, values, color=_SEEN, lw=1)
            rest = np.asarray(values)[len(values) // 20 :]
            low, high = rest.min(), rest.max()
            panel.set_ylim(low - 0.05 * (high - low) - 1e-9, high + 0.05 * (high - low) + 1e-9)
            panel.set_title(f"stage {stage}: {name}", fontsize=9)
            panel.tick_params(labelsize=7)

    says = "Terms of the objective over the steps of each stage; flat at the end means converged."
    items = "".join(f"<li>{_text(history)}</li>" for history in model.histories)
    return _section("Training", _figure(draw, (9, 2 * down + 0.2), says), f"<ul>{items}</ul>")


def _as_image(table: np.ndarray) -> tuple[int, int] | None:
    """Return height and width if samples are images; None for rows of a table."""
    return (table.shape[-2], table.shape[-1]) if table.ndim > 2 else None


def _gallery(table: np.ndarray, values: np.ndarray, count: int = 6) -> str:
    """Draw some samples with mean, draws and standard deviation."""
    count = min(count, len(table))
    says = "Samples as given (missing in blue), their mean, three draws, and the standard deviation of the draws."
    height = 1.4 * count * shape_of(table)
    return _section(
        "Images", _figure(lambda figure: draw_gallery(figure, table[:count], values[:, :count]), (9, height + 0.4), says)
    )


def _settings(model: FittedModel) -> str:
    parameters = {
        field.name: getattr(model.parameters, field.name)
        for field in fields(Parameters)
        if getattr(model.parameters, field.name) is not None
    }
    packages = [f"{name} {version(name)}" for name in ("unfade", "torch", "numpy", "scikit-learn")]
    rows = [(name, str(value)[:200]) for name, value in parameters.items()]
    rows += [("seed of the fit", str(model.seed)), ("training took", f"{sum(h.seconds for h in model.histories):.1f} s")]
    rows += [("noise level", str(model.noise)[:200])]
    rows += [("ensemble members", str(len(model.posterior.each)) if model.posterior is not None else "0")]
    rows += [("versions", f"{', '.join(packages)}, Python {platform.python_version()}")]
    return _section("Settings", _table(("setting", "value"), rows))
