"""The report: a verdict, the three pictures that matter, and folded details, as one HTML file that needs no network."""

import os
import platform
from collections.abc import Sequence
from dataclasses import fields
from importlib.metadata import version
from typing import Any

import numpy as np

from unfade import storage
from unfade.data.columns import Column
from unfade.data.dataset import Dataset
from unfade.diagnostics.checks import Diagnosis, Verdict, diagnose, large_images
from unfade.diagnostics.images import draw_gallery, shape_of
from unfade.diagnostics.markup import escaped, figure, folded, section, short, table
from unfade.diagnostics.panels import draw_coverage, draw_missing, draw_pair, draw_values
from unfade.diagnostics.plots import SEEN, pattern
from unfade.diagnostics.predictions import outliers
from unfade.diagnostics.series_page import zoomable
from unfade.inference.draws import Draws
from unfade.inference.fitted_model import FittedModel
from unfade.methods.parameters import Parameters

_ROWS = 2000  # rows that pictures of values are made from
_CELLS = 10_000  # cells that are predicted from the rest of their row
_COLUMNS, _FIRST = 24, 8  # columns that are drawn one by one, and those of the first picture
_SIGNS = {"green": "&#10003;", "amber": "!", "red": "&#10007;"}
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
.lead { font-size: 1.15rem; padding: .7rem 1rem; border-left: .35rem solid; background: #f5f7f8; }
p.green { border-color: var(--green); } p.amber { border-color: var(--amber); } p.red { border-color: var(--red); }
.quiet { color: #555; } summary { cursor: pointer; } details { border-bottom: 1px solid #ccc; }
summary h2 { display: inline-block; border: 0; margin: .6rem 0; font-size: 1.05rem; }
@media (max-width: 40rem) { figure { overflow-x: auto; } figure img { max-width: none; width: 38rem; } }
@media print { body { max-width: none; padding: 0; font-size: 11pt; } h2, figure, tr, li { break-inside: avoid; }
  h2 { break-after: avoid; } .scroll { overflow: visible; } details::details-content { content-visibility: visible;
  display: block; height: auto; } }
"""
_UNFOLD = "onbeforeprint = () => document.querySelectorAll('details').forEach(part => { part.open = true })"


def write_report(model: FittedModel, X: Any, path: str | os.PathLike[str], draws: Draws | None = None) -> Diagnosis:
    """Write the report, and return what it says.

    Parameters
    ----------
    model : FittedModel
    X : the data of the fit
    path : path
    draws : Draws of X; None, or fewer than three: draws of some rows are made

    Returns
    -------
    Diagnosis
    """
    data, draws = model.read(X), None if draws is None or len(draws) < 3 else draws
    draws = model.sample(data, 20) if draws is None and data.timeline is not None else draws
    found, large = diagnose(model, data), large_images(model)
    rows = np.sort(np.random.default_rng(0).permutation(len(data))[: 6 if large else _ROWS])
    part = data.rows(rows)
    some = model.sample(part, 20, row_ids=rows.tolist()) if draws is None else draws
    values = some.values if draws is None else draws.values[:20, rows]
    given, container = part.table(), part.container
    first, rest = [_calibration(found), "" if large else _missingness(found, data)], [_columns_table(found)]
    if given.ndim == 2 and _as_image(given) is None:
        columns = container.columns or tuple(Column(str(j), "continuous") for j in range(given.shape[1]))
        first.insert(1, _distributions(given, values, columns, 0, _FIRST))
        rest += [_distributions(given, values, columns, _FIRST, _COLUMNS), _pairs(given, values, columns)]
        rest += [_surprising(model, data, rows, len(columns)), _noise(found), _links(found)]
    else:
        first.insert(0, _gallery(given, values))
    if data.timeline is not None and draws is not None:
        first.insert(0, section("Series", zoomable(data, draws.values)))
    rest += [_simple(found), _learning(model), _settings(model)]
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>unfade: diagnosis</title>'
        f"<style>{_STYLE}</style><script>{_UNFOLD}</script></head><body><main>"
        f"<h1>How far to trust these results</h1>{_verdicts(found)}{''.join(first)}{''.join(rest)}</main></body></html>"
    )
    with storage.whole_or_nothing(path) as file:
        file.write_text(page, encoding="utf-8")
    return found


def _verdicts(found: Diagnosis) -> str:
    """Write the verdict of all checks, those that did not pass, and the others folded."""
    open_ones = [verdict for verdict in found.verdicts if verdict.level != "green"]
    passed = [verdict for verdict in found.verdicts if verdict.level == "green"]
    lead = f'<p class="lead {found.level}"><b>{found.summary}</b></p>'
    words = '<p class="quiet">Each check rests on observed cells that were hidden from training and predicted.</p>'
    return lead + _list(open_ones) + words + folded("Checks that passed", _list(passed))


def _list(verdicts: Sequence[Verdict]) -> str:
    lines = "".join(
        f'<li class="{v.level}"><span class="sign" aria-hidden="true">{_SIGNS[v.level]}</span><b>{escaped(v.what)}</b> '
        f'<span class="quiet">({v.level})</span>: {escaped(v.says)} {f"<i>{escaped(v.todo)}</i>" if v.todo else ""}</li>'
        for v in verdicts
    )
    return f'<ul class="verdicts">{lines}</ul>' if lines else ""


def _missingness(found: Diagnosis, data: Dataset) -> str:
    cells = found.cells
    missing = np.isnan(cells.seen)
    missing[cells.rows, cells.columns] = False
    used = [j for j in range(missing.shape[1]) if not (cells.kinds and cells.kinds[j].kind == "passthrough")]
    share = missing.mean(0)
    share[np.setdiff1d(np.arange(len(share)), used)] = 0.0
    missing = missing[:, used]
    words = f"<p>{len(missing):,} rows of {missing.shape[1]:,} {'columns' if cells.kinds else 'entries'}; "
    words += f"{missing.mean():.1%} of all cells are missing, {(~missing.any(1)).mean():.1%} of the rows are complete.</p>"
    worst = [j for j in np.argsort(-share, kind="stable")[:40] if share[j] > 0]
    if not worst:
        return section("Missing cells", words)

    shown = [cells.name(j) for j in worst]
    says = f"Share of missing cells by column, most first; {cells.name(worst[0])} has {share[worst[0]]:.0%}."
    size = 7.0, 0.5 + 0.24 * len(worst)
    bars = figure(lambda f: draw_missing(f.subplots(), shown, share[worst]), size, says)
    kinds = "Patterns of missing cells: rows of each left, missing columns right, missing cells of each column below."
    few, wide = len(cells.seen[0]) <= 30 and len(data.obs.event_shape) == 1, 1.2 + 0.45 * cells.seen.shape[1]
    more = figure(lambda f: pattern(data, f.subplots(), 12), (wide, 3.6), kinds) if few else ""
    return section("Missing cells", words, bars, more)


def _calibration(found: Diagnosis) -> str:
    numbers = found.cells.numbers()
    if len(numbers) < 20:
        return ""
    says = (
        "Left: ranks of held-out values among their draws; uniform is right, high ends mean too narrow draws; chance "
        "stays between the dashed lines. Right: empirical coverage of central intervals; on the line is nominal."
    )
    return section("Coverage of intervals", figure(lambda f: draw_coverage(f.subplots(1, 2), numbers), (9, 3.2), says))


def _columns_table(found: Diagnosis) -> str:
    rows = [
        (c.column, c.cells, f"{c.coverage:.1%}", f"{c.low:.0%} to {c.high:.0%}", c.finding, round(c.crps, 3))
        if np.isfinite(c.coverage)
        else (c.column, c.cells, "", "", c.finding, "")
        for c in found.columns[:200]
    ]
    heads = ("column", "held-out cells", "coverage of 90 % intervals", "within tolerance", "finding", "CRPS (sds)")
    return folded("Coverage per column", table(heads, rows))


def _distributions(given: np.ndarray, values: np.ndarray, columns: Sequence[Column], start: int, end: int) -> str:
    """Draw observed and imputed values of columns, those with most missing cells first."""
    gone = np.isnan(given)
    filled = (gone & np.isfinite(values[0])).any(0)
    order = [j for j in np.argsort(-gone.sum(0), kind="stable") if columns[j].kind != "passthrough" and filled[j]]
    shown = order[start:end]
    if not shown:
        return ""
    across = min(4, len(shown))
    down = -(-len(shown) // across)

    def draw(whole: Any) -> None:
        panels = np.ravel(whole.subplots(down, across, squeeze=False))
        for panel in panels[len(shown) :]:
            panel.axis("off")
        for panel, j in zip(panels, shown, strict=False):
            draw_values(panel, given[~gone[:, j], j], values[:, gone[:, j], j].ravel(), columns[j])
        panels[0].legend(fontsize=7)

    of = (
        ""
        if len(order) == len(shown)
        else f" Columns {start + 1} to {start + len(shown)} of {len(order)} by missing cells."
    )
    says = f"Distribution of observed values (filled) and of draws of missing ones (line), per column.{of}"
    caption = f"{says} They need not agree: missing values may differ from observed ones."
    shape = figure(draw, (9, 1.9 * down + 0.3), says, caption)
    return section("Observed and drawn values", shape) if start == 0 else folded("More columns", shape)


def _pairs(given: np.ndarray, values: np.ndarray, columns: Sequence[Column]) -> str:
    """Draw the most correlated pairs of columns: rows observed in both, and rows with a drawn value."""
    numbers = [
        j
        for j, c in enumerate(columns)
        if not c.discrete and c.kind != "passthrough" and len(np.unique(given[~np.isnan(given[:, j]), j])) > 1
    ]
    numbers = numbers[:60]
    if len(numbers) < 2:
        return ""
    strength = np.nan_to_num(np.abs(np.corrcoef(values[0][:, numbers], rowvar=False)))
    i, j = np.triu_indices(len(numbers), 1)
    best = np.argsort(-strength[i, j])[:4]
    chosen = [(numbers[i[b]], numbers[j[b]]) for b in best]

    def draw(whole: Any) -> None:
        panels = np.ravel(whole.subplots(1, len(chosen), squeeze=False))
        for panel, (a, b) in zip(panels, chosen, strict=True):
            draw_pair(panel, given, values[0], a, b, columns)
        panels[0].legend(fontsize=7)

    says = "The most correlated pairs of columns, in one completed table."
    return folded("Pairs", figure(draw, (2.4 * len(chosen) + 0.4, 2.6), says))


def _surprising(model: FittedModel, data: Dataset, rows: np.ndarray, columns: int) -> str:
    rows = rows[:: -(-len(rows) * columns // _CELLS)] if data.timeline is None else np.arange(len(data))
    found = outliers(model, data.rows(rows), most=12, n_draws=50)
    lines = [
        (
            int(rows[s.row]),
            str(s.column),
            s.value,
            s.expected,
            "" if s.low is None else f"{short(s.low)} to {short(s.high)}",
        )
        for s in found
        if s.distance > 3
    ]
    among = f" (among {len(rows):,} rows taken at random)" if len(rows) < len(data) else ""
    words = f"<p>Observed cells that the rest of their row does not predict{among}, likely errors first.</p>"
    if not lines:
        return folded("Outliers", "<p>No observed cell is far from its prediction by the rest of its row.</p>")
    return folded("Outliers", words, table(("row", "column", "value", "expected", "90 % of draws"), lines))


def _noise(found: Diagnosis) -> str:
    rows = [
        (str(n.column), n.sd, n.low, n.high, f"{max(0.0, n.explained):.0%}", "yes" if n.told else "no") for n in found.noise
    ]
    heads = ("column", "noise sd", "low", "high", "explained by other columns", "identified")
    return folded("Noise", table(heads, rows[:100]))


def _links(found: Diagnosis) -> str:
    rows = [(link.column, link.where, round(abs(link.shift), 2), round(abs(link.z), 1)) for link in found.links[:20]]
    heads = ("missing more often:", "where", "by (sds)", "z")
    return folded("Missingness", table(heads, rows))


def _simple(found: Diagnosis) -> str:
    rows = [(name, round(score, 4)) for name, score in found.simple.scores.items()]
    words = f"<p>Mean CRPS of {found.simple.cells} held-out cells, in sds (columns or all pixels); lower is better.</p>"
    return folded("Comparison with simple methods", words, table(("method", "CRPS"), rows))


def _learning(model: FittedModel) -> str:
    stages = [history for history in model.histories if history.steps]
    curves = [(i, name, h.steps, v) for i, h in enumerate(stages, 1) for name, v in h.terms.items()][:16]
    if not curves:
        return ""
    across = min(4, len(curves))
    down = -(-len(curves) // across)

    def draw(whole: Any) -> None:
        panels = np.ravel(whole.subplots(down, across, squeeze=False))
        for panel in panels[len(curves) :]:
            panel.axis("off")
        for panel, (stage, name, steps, values) in zip(panels, curves, strict=False):
            panel.plot(steps, values, color=SEEN, lw=1)
            rest = np.asarray(values)[len(values) // 20 :]
            low, high = rest.min(), rest.max()
            panel.set_ylim(low - 0.05 * (high - low) - 1e-9, high + 0.05 * (high - low) + 1e-9)
            panel.set_title(f"stage {stage}: {name}", fontsize=9)
            panel.tick_params(labelsize=7)

    says = "Terms of the objective over the steps of each stage; flat at the end means converged."
    items = "".join(f"<li>{escaped(history)}</li>" for history in model.histories)
    return folded("Training", figure(draw, (9, 2 * down + 0.2), says), f"<ul>{items}</ul>")


def _as_image(given: np.ndarray) -> tuple[int, int] | None:
    """Return height and width if samples are images; None for rows of a table."""
    return (given.shape[-2], given.shape[-1]) if given.ndim > 2 else None


def _gallery(given: np.ndarray, values: np.ndarray, count: int = 6) -> str:
    """Draw some samples with mean, draws and standard deviation."""
    count = min(count, len(given))
    says = "Samples as given (missing in blue), their mean, three draws, and the standard deviation of the draws."
    size = 9.0, 1.4 * count * shape_of(given) + 0.4
    return section("Images", figure(lambda f: draw_gallery(f, given[:count], values[:, :count]), size, says))


def _settings(model: FittedModel) -> str:
    parameters = {field.name: getattr(model.parameters, field.name) for field in fields(Parameters)}
    parameters = {name: value for name, value in parameters.items() if value is not None}
    packages = [f"{name} {version(name)}" for name in ("unfade", "torch", "numpy", "scikit-learn")]
    rows = [(name, str(value)[:200]) for name, value in parameters.items()]
    rows += [("seed of the fit", str(model.seed)), ("training took", f"{sum(h.seconds for h in model.histories):.1f} s")]
    members = 0 if model.posterior is None else len(model.posterior.each)
    rows += [("noise level", str(model.noise)[:200]), ("ensemble members", str(members))]
    rows += [("versions", f"{', '.join(packages)}, Python {platform.python_version()}")]
    return folded("Settings", table(("setting", "value"), rows))
