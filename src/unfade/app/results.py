"""Step 3 of the page: the result first, then how far to trust it, then the files."""

import html
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from unfade.app.elements import boxed, offer, plain, show_facts, show_figure, show_pictures, show_verdict
from unfade.app.jobs import Result, lasting
from unfade.app.preview import Preview
from unfade.app.row_view import column_view, image_view, row_view, words
from unfade.app.settings_form import in_words
from unfade.app.uploads import Loaded
from unfade.diagnostics.panels import draw_rows, draw_values
from unfade.errors import UnfadeError

LONG = 200  # rows that a column is drawn along
WIDE = 40  # columns of the table before and after


def show_result(loaded: Loaded, result: Result) -> None:
    """Show the result, its diagnosis and its files."""
    show_facts(
        {
            "cells filled": f"{result.missing - result.left:,}",
            "still missing": f"{result.left:,}",
            **noise_facts(result),
            "time taken": lasting(result.seconds),
        }
    )
    if result.preview is not None and result.settings.time is not None:
        show_series(result, result.preview)
    elif result.preview is not None:
        table, column, along, row = st.tabs(["Before and after", "Column by column", "Along the rows", "One row"])
        with table:
            show_table(result.preview)
        with column:
            show_column(result.preview)
        with along:
            show_along(loaded, result, result.preview)
        with row:
            show_row(loaded, result)
    elif result.recoverer is not None:
        show_image(loaded, result)
    if result.recoverer is not None:
        show_trust(result)
    show_files(loaded, result)


def show_series(result: Result, shown: Preview) -> None:
    """Show a stretch of a series, the table and the columns; a row alone means little along time."""
    series, table, column = st.tabs(["Along time", "Before and after", "Column by column"])
    with series:
        if result.series is not None:
            st.iframe(boxed(result.series), height=780, alt="Series")
            st.caption("The stretch with most gaps. Zoom by the wheel or the buttons, drag to move.")
    with table:
        show_table(shown)
    with column:
        show_column(shown)


def show_trust(result: Result) -> None:
    """Show the diagnosis, and the report folded."""
    st.header("How far to trust it", anchor=False)
    if result.diagnosis is not None:
        show_verdict(result.diagnosis)
    with st.expander("The report: pictures and details"):
        if result.report is None:
            st.markdown("There is no report of these data.")
        else:
            st.iframe(boxed(result.report.read_text(encoding="utf-8")), height=900, alt="Report")


def show_files(loaded: Loaded, result: Result) -> None:
    """Show the download buttons, and the settings that the files were made with."""
    st.header("Download", anchor=False)
    with st.container(horizontal=True):
        offer("Clean data", result.clean, f"{loaded.stem}-clean{loaded.ending}", primary=True)
        offer(f"{result.settings.draws} draws", result.draws, f"{loaded.stem}-draws.parquet")
        offer("Draws for R's mice", result.mice, f"{loaded.stem}-mice.csv")
        offer("Report", result.report, f"{loaded.stem}-report.html")
    made = " · ".join(f"{name}: {value}" for name, value in in_words(result.settings).items())
    st.caption(plain(f"Settings of these results. {made}"))


def noise_facts(result: Result) -> dict[str, str]:
    """Return the noise level, if all columns share it."""
    level = None if result.recoverer is None else result.recoverer.noise_
    if result.settings.noise is None or isinstance(level, np.ndarray) or level is None:
        return {}
    return {"noise (standard deviation)": f"{level:.3g}"}


@st.fragment
def show_table(shown: Preview) -> None:
    """Show some rows before or after, with the changed cells marked."""
    if not len(shown.rows):
        st.markdown("No cell has changed.")
        return
    when = st.segmented_control("Show the table", ["After", "Before"], default="After", key="when", required=True)
    st.html(as_table(shown, shown.before if when == "Before" else shown.after))
    more = f" Of {len(shown.names):,} columns the first {WIDE}." if len(shown.names) > WIDE else ""
    st.html(
        '<div class="unfade-key"><mark class="filled">filled</mark> <mark class="cleaned">noise removed</mark> '
        f'<mark class="gone">missing</mark> The first {len(shown.rows)} rows that changed.{more}</div>'
    )


def as_table(shown: Preview, cells: list[list[Any]]) -> str:
    """Format rows as a table; changed cells are marked."""
    heads = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in ("row", *shown.names[:WIDE]))
    lines = []
    for number, row, changes in zip(shown.rows, cells, shown.changed, strict=True):
        line = "".join(cell(value, change) for value, change in zip(row[:WIDE], changes, strict=False))
        lines.append(f'<tr><td class="row">{number}</td>{line}</tr>')
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return f'<div class="unfade-table" tabindex="0" role="region" aria-label="Table">{table}</div>'


def cell(value: Any, change: str) -> str:
    """Format a cell of the table."""
    text = html.escape(words(value))
    if value is None:
        text = '<mark class="gone">missing</mark>'
    elif change:
        text = f'<mark class="{change}" title="{change}">{text}</mark>'
    return f"<td{' class=number' if isinstance(value, (int, float)) else ''}>{text}</td>"


@st.fragment
def show_column(shown: Preview) -> None:
    """Show the distribution of a column: observed values, and draws of missing ones."""
    j = choose_column(shown, "column shown")
    if j is None:
        return
    gone = np.isnan(shown.given[:, j])

    def draw(figure: Any) -> None:
        panel = figure.subplots()
        draw_values(panel, shown.given[~gone, j], shown.drawn[:, gone, j].ravel(), shown.columns[j])
        panel.legend(fontsize=8)

    says = f"Distribution of observed values of {shown.names[j]} and of draws of its missing ones"
    show_figure(draw, (7, 3), says)
    st.caption("Blue: observed values. Orange: draws of the missing ones. They need not agree.")


def choose_column(shown: Preview, key: str, numbers: bool = False) -> int | None:
    """Ask for a column that the model uses, the one with most missing cells first; None if there is none."""
    share = np.isnan(shown.given).mean(0)
    used = [j for j, c in enumerate(shown.columns) if c.kind != "passthrough" and not (numbers and c.discrete)]
    if not used:
        st.markdown("There is no such column.")
        return None
    order = sorted(used, key=lambda j: -share[j])
    return st.selectbox("Column", order, format_func=lambda j: shown.names[j], key=key)


@st.fragment
def show_along(loaded: Loaded, result: Result, shown: Preview) -> None:
    """Show a column of numbers along its rows, as a series, with a band and one draw."""
    j = choose_column(shown, "column along", numbers=True)
    if j is None:
        return
    start, one = 0, 0
    left, right = st.columns(2)
    if loaded.rows > LONG:
        start = left.slider("First row", 0, loaded.rows - LONG, 0, step=LONG // 4)
    if result.settings.draws > 1:
        one = right.slider("Draw", 0, result.settings.draws - 1, 0)
    rows, given, draws = column_view(loaded, result, start, LONG, j)
    says = f"{shown.names[j]} along rows {start} to {start + len(rows) - 1}: given values, mean, band of the draws, a draw"
    show_figure(lambda figure: draw_rows(figure.subplots(), rows, given, draws, shown.columns[j], one), (7, 3.2), says)


@st.fragment
def show_image(loaded: Loaded, result: Result) -> None:
    """Show an image as given, its mean and standard deviation, and the draw of a slider."""
    left, right = st.columns(2)
    number = left.number_input("Image, counted from 0", min_value=0, max_value=loaded.rows - 1, value=0)
    one = right.slider("Draw", 0, result.settings.draws - 1, 0) if result.settings.draws > 1 else 0
    pictures = image_view(loaded, result, int(number), one)
    if pictures:
        show_pictures(pictures)
        st.caption("Missing pixels are blue. The standard deviation is light where the draws differ.")


@st.fragment
def show_row(loaded: Loaded, result: Result) -> None:
    """Show the draws of a row, and their summary per cell."""
    row = st.number_input(
        "Row, counted from 0", min_value=0, max_value=loaded.rows - 1, value=0, help="As in the file of draws.", width=260
    )
    try:
        view = row_view(loaded, result, int(row))
    except UnfadeError as error:
        st.error(plain(str(error)))
        return
    cells = pd.DataFrame(
        {
            "column": [cell.column for cell in view.cells],
            "given": [cell.came for cell in view.cells],
            "clean": [cell.clean for cell in view.cells],
            "90 % interval": [cell.likely for cell in view.cells],
            "result": [cell.became for cell in view.cells],
        }
    )
    st.dataframe(cells, hide_index=True)
    st.caption("90 % interval: nine draws in ten lie inside; for categories, how often each value is drawn.")
    st.markdown(f"**Its {len(view.draws)} draws**")
    st.dataframe(pd.DataFrame(view.draws).rename_axis("draw"))
