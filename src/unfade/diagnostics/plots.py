"""Plots of missing data, draws and fits: matplotlib axes in, the same axes out."""

from typing import Any

import numpy as np

from unfade.data.dataset import Dataset, read
from unfade.errors import InvalidData
from unfade.inference.draws import Draws
from unfade.inference.fitted_attributes import FittedAttributes
from unfade.inference.fitted_model import FittedModel

SEEN, DRAWN, GREY = "#0072B2", "#E69F00", "#9aa5b1"  # apart for colour-blind eyes too (Okabe and Ito)
Fitted = FittedAttributes | FittedModel  # a Recoverer, or its model


def missing_patterns(data: Any) -> tuple[list[Any], np.ndarray, np.ndarray]:
    """Count the patterns of missing cells, in the order of R's `md.pattern`.

    Parameters
    ----------
    data : array or frame, (samples, columns)

    Returns
    -------
    names : list
        Columns, those with the fewest missing cells first.
    patterns : bool ndarray, (patterns, columns)
        True where observed.
    counts : ndarray, (patterns,)
        Rows of each pattern.
    """
    missing, names = _missing(data)
    order = np.argsort(missing.sum(0), kind="stable")
    found, counts = np.unique(missing[:, order], axis=0, return_counts=True)
    return [names[i] for i in order], ~found, counts


def pattern(data: Any, ax: Any = None, most: int = 25) -> Any:
    """Plot the patterns of missing cells as R's `md.pattern` does: counts left, missing columns right, totals below.

    Parameters
    ----------
    data : array or frame, (samples, columns)
    ax : matplotlib Axes or None
    most : int
        Patterns that are shown, the most frequent ones.

    Returns
    -------
    matplotlib Axes
    """
    names, patterns, counts = missing_patterns(data)
    kept = np.sort(np.argsort(-counts, kind="stable")[:most])
    totals = (~patterns * counts[:, None]).sum(0)
    patterns, counts = patterns[kept], counts[kept]
    ax = _axes(ax, (1.2 + 0.45 * len(names), 0.9 + 0.28 * len(counts)))
    _cells(ax, patterns)
    ax.set_yticks(range(len(counts)), [str(count) for count in counts])
    ax.set_xticks(range(len(names)), [label(name) for name in names], rotation=60, ha="left")
    ax.xaxis.tick_top()
    for row, seen in enumerate(patterns):
        ax.text(len(names) - 0.35, row, str(int((~seen).sum())), va="center", fontsize="small")
    for column, total in enumerate(totals):
        ax.text(column, len(counts) - 0.3, str(int(total)), ha="center", va="top", fontsize="small")
    ax.set_ylabel("rows")
    return ax


def matrix(data: Any, ax: Any = None, most: int = 1000) -> Any:
    """Plot which cells are missing, row by row in the order of the data.

    Parameters
    ----------
    data : array or frame, (samples, columns)
    ax : matplotlib Axes or None
    most : int
        Rows that are shown, evenly chosen.

    Returns
    -------
    matplotlib Axes
    """
    missing, names = _missing(data)
    ax = _axes(ax, (1.5 + 0.35 * len(names), 4))
    rows = np.unique(np.linspace(0, len(missing) - 1, min(most, len(missing))).astype(int))
    _cells(ax, ~missing[rows], lines=False)
    shown = np.linspace(0, len(rows) - 1, min(6, len(rows))).astype(int)
    ax.set_yticks(shown, [str(rows[i]) for i in shown])
    ax.set_xticks(range(len(names)), [label(name) for name in names], rotation=60, ha="left")
    ax.xaxis.tick_top()
    ax.set_ylabel("row")
    return ax


def upset(data: Any, axes: Any = None, most: int = 15) -> Any:
    """Plot the sets of columns that are missing together, by the number of rows (UpSet plot).

    Parameters
    ----------
    data : array or frame, (samples, columns)
    axes : pair of matplotlib Axes or None
        Upper one for the bars, lower one for the sets.
    most : int
        Sets that are shown.

    Returns
    -------
    pair of matplotlib Axes
    """
    names, patterns, counts = missing_patterns(data)
    holes = (~patterns).any(1)
    order = np.argsort(-counts[holes], kind="stable")[:most]
    sets, sizes = ~patterns[holes][order], counts[holes][order]
    used = np.flatnonzero((~patterns).any(0))
    if axes is None:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(2 + 0.35 * max(1, len(sizes)), 2.2 + 0.25 * len(used)), layout="constrained")
        axes = figure.subplots(2, 1, sharex=True, height_ratios=[2, 0.3 + 0.25 * max(1, len(used))])
    top, below = axes
    top.bar(range(len(sizes)), sizes, color=DRAWN)
    top.set_ylabel("rows")
    for place, size in enumerate(sizes):
        top.text(place, size, str(int(size)), ha="center", va="bottom", fontsize="small")
    below.set_yticks(range(len(used)), [label(names[i]) for i in used])
    below.set_ylim(-0.5, len(used) - 0.5)
    below.set_xticks([])
    for place, chosen in enumerate(sets[:, used]):
        below.scatter([place] * len(used), range(len(used)), color=np.where(chosen, DRAWN, "#e3e6ea"), s=30, zorder=2)
        inside = np.flatnonzero(chosen)
        below.plot([place, place], [inside[0], inside[-1]], color=DRAWN, zorder=1)
    for ax in (top, below):
        _bare(ax)
    return axes


def strip(draws: Draws, column: Any, ax: Any = None, most: int = 10) -> Any:
    """Plot observed and drawn values of a column next to each other, a strip per draw.

    Parameters
    ----------
    draws : Draws
    column : str or int
    ax : matplotlib Axes or None
    most : int
        Draws that are shown.

    Returns
    -------
    matplotlib Axes
    """
    seen, drawn, name = _observed_and_drawn(draws, column)
    ax, rng = _axes(ax, (6, 3.2)), np.random.default_rng(0)
    for place, (values, color) in enumerate([(seen, SEEN), *((each, DRAWN) for each in drawn[:most])]):
        values = values[~np.isnan(values)]
        values = values if len(values) <= 500 else rng.choice(values, 500, replace=False)
        ax.scatter(place + rng.uniform(-0.25, 0.25, len(values)), values, s=6, color=color, alpha=0.5, linewidths=0)
    ax.set_xticks(range(1 + min(most, len(drawn))), ["observed  ", *(str(i + 1) for i in range(min(most, len(drawn))))])
    ax.get_xticklabels()[0].set_horizontalalignment("right")
    ax.set_xlabel("draw")
    ax.set_ylabel(label(name))
    return _bare(ax)


def density(draws: Draws, column: Any, ax: Any = None, most: int = 10) -> Any:
    """Plot the density of the observed values of a column, and that of the drawn ones of each draw.

    Parameters
    ----------
    draws : Draws
    column : str or int
    ax : matplotlib Axes or None
    most : int
        Draws that are shown.

    Returns
    -------
    matplotlib Axes
    """
    seen, drawn, name = _observed_and_drawn(draws, column)
    ax = _axes(ax, (5, 3))
    for number, values in enumerate([*drawn[:most], seen]):
        last = number == min(most, len(drawn))
        grid, height = _smoothed(values[~np.isnan(values)], np.concatenate([seen, drawn.ravel()]))
        what = "observed" if last else "drawn" if number == 0 else None
        ax.plot(grid, height, color=SEEN if last else DRAWN, lw=2 if last else 0.8, alpha=1 if last else 0.7, label=what)
    ax.legend(frameon=False, fontsize="small")
    ax.set_xlabel(label(name))
    ax.set_yticks([])
    return _bare(ax)


def traces(fitted: Fitted, ax: Any = None) -> Any:
    """Plot the objective over the steps of training, a line per stage.

    Parameters
    ----------
    fitted : Recoverer or FittedModel
    ax : matplotlib Axes or None

    Returns
    -------
    matplotlib Axes
    """
    histories = [history for history in _model(fitted).histories if history.steps and history.terms]
    ax = _axes(ax, (5, 3))
    for number, history in enumerate(histories, 1):
        name, values = next(iter(history.terms.items()))
        ax.plot(history.steps[: len(values)], values, label=f"stage {number}: {name}")
    if histories:
        ax.legend(frameon=False, fontsize="small")
    else:
        ax.text(0.5, 0.5, "no network was trained", ha="center", va="center", transform=ax.transAxes)
    ax.set_xlabel("step")
    return _bare(ax)


def calibration(fitted: Fitted, ax: Any = None) -> Any:
    """Plot the empirical coverage of intervals of held-out cells against the nominal one.

    Parameters
    ----------
    fitted : Recoverer or FittedModel
    ax : matplotlib Axes or None

    Returns
    -------
    matplotlib Axes
    """
    held = _model(fitted).held_out
    if held is None or not len(held):
        raise InvalidData("This fit held out no cells, so there is no coverage to plot. Fit without max_steps.")
    numbers = held.numbers()
    levels = np.linspace(0.1, 0.95, 18)
    nominal = [numbers.due(level) for level in levels]
    found = [float(numbers.covered(level).mean()) if len(numbers) else np.nan for level in levels]
    ax = _axes(ax, (3.4, 3.4))
    ax.plot([0, 1], [0, 1], color=GREY, lw=1)
    error = 2 * np.sqrt(np.array(nominal) * (1 - np.array(nominal)) / max(1, len(numbers)))
    ax.fill_between(nominal, np.array(nominal) - error, np.array(nominal) + error, color="#e3e6ea", lw=0)
    ax.plot(nominal, found, color=DRAWN, marker="o", ms=3)
    ax.set_xlabel("nominal coverage")
    ax.set_ylabel(f"empirical coverage ({len(numbers)} held-out cells)")
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    ax.set_aspect("equal")
    return _bare(ax)


def _missing(data: Any) -> tuple[np.ndarray, list[Any]]:
    """Find the missing cells of a table and the names of its columns."""
    found = data if isinstance(data, Dataset) else read(data)
    missing = found.missing_in(found.given())
    if missing.ndim != 2:
        raise InvalidData(f"Plots of missing cells are for tables, got samples of shape {missing.shape[1:]}.")
    return missing, list(found.container.names or range(missing.shape[1]))


def _observed_and_drawn(draws: Draws, column: Any) -> tuple[np.ndarray, np.ndarray, Any]:
    """Return the observed values of a column, and those of its missing cells in each draw."""
    names = list(draws.columns or range(draws.values.shape[-1]))
    if draws.values.ndim != 3 or column not in names:
        raise InvalidData(f"There is no column {column!r}. Columns are {names[:10]}.")
    if draws.observed is None:
        raise InvalidData("These draws do not know which cells were observed. Take them from Recoverer.sample.")
    place = names.index(column)
    seen = draws.observed[:, place]
    known = draws.values[0] if draws.given is None else draws.given
    return known[seen, place], draws.values[:, ~seen, place], column


def _smoothed(values: np.ndarray, everything: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Estimate a density by a Gaussian kernel."""
    low, high = np.nanmin(everything), np.nanmax(everything)
    grid = np.linspace(low - 0.05 * (high - low), high + 0.05 * (high - low) + 1e-12, 200)
    if len(values) < 2 or values.std() == 0:
        return grid, np.zeros_like(grid)
    width = 1.06 * values.std() * len(values) ** -0.2
    some = values if len(values) <= 2000 else np.random.default_rng(0).choice(values, 2000, replace=False)
    return grid, np.exp(-0.5 * ((grid[:, None] - some) / width) ** 2).mean(1) / width


def _cells(ax: Any, seen: np.ndarray, lines: bool = True) -> None:
    """Show booleans as cells, missing ones in the colour of draws."""
    from matplotlib.colors import ListedColormap

    ax.imshow(seen, aspect="auto", cmap=ListedColormap([DRAWN, SEEN]), vmin=0, vmax=1, interpolation="nearest")
    ax.tick_params(length=0)
    if lines:
        ax.set_xticks(np.arange(seen.shape[1] + 1) - 0.5, minor=True)
        ax.set_yticks(np.arange(len(seen) + 1) - 0.5, minor=True)
        ax.grid(which="minor", color="white", lw=1.5)
        ax.tick_params(which="minor", length=0)
    for side in ax.spines.values():
        side.set_visible(False)


def _axes(ax: Any, size: tuple[float, float]) -> Any:
    """Return axes: those given, or new ones of a figure without a window."""
    if ax is not None:
        return ax
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained").subplots()


def _bare(ax: Any) -> Any:
    """Remove the upper and the right border."""
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def label(name: Any, most: int = 24) -> str:
    """Shorten a name for a picture, and escape formulas.

    Parameters
    ----------
    name : object
    most : int
        Characters.

    Returns
    -------
    str
    """
    return str(name)[:most].replace("$", r"\$")


def _model(fitted: Fitted) -> FittedModel:
    return fitted.model_ if isinstance(fitted, FittedAttributes) else fitted
