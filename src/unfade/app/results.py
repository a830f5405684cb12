"""Step 3 of the page: facts, files, the report, and any row with its draws."""

import numpy as np
import pandas as pd
import streamlit as st

from unfade.app.elements import boxed, offer, plain, show_facts, show_pictures
from unfade.app.jobs import Result, lasting
from unfade.app.row_view import row_view
from unfade.app.settings_form import in_words
from unfade.app.uploads import Loaded
from unfade.errors import UnfadeError


def show_result(loaded: Loaded, result: Result) -> None:
    """Show facts, files, report and rows."""
    show_facts(
        {
            "cells filled": f"{result.missing - result.left:,}",
            "still missing": f"{result.left:,}",
            **noise_facts(result),
            "time taken": lasting(result.seconds),
        }
    )
    made = " · ".join(f"{name}: {value}" for name, value in in_words(result.settings).items())
    st.caption(plain(f"Settings of these results. {made}"))
    with st.container(horizontal=True):
        offer("Clean data", result.clean, f"{loaded.stem}-clean{loaded.ending}", primary=True)
        if result.recoverer is None:
            return
        offer(f"{result.settings.draws} draws", result.draws, f"{loaded.stem}-draws.parquet")
        offer("Report", result.report, f"{loaded.stem}-report.html")
    report, row = st.tabs(["Report", "One row"])
    with report:
        if result.report is None:
            st.markdown("There is no report of these data.")
        else:
            st.iframe(boxed(result.report.read_text(encoding="utf-8")), height=900, alt="Report")
    with row:
        show_row(loaded, result)


def noise_facts(result: Result) -> dict[str, str]:
    """Return the noise level, if all columns share it."""
    level = None if result.recoverer is None else result.recoverer.noise_
    if result.settings.noise is None or isinstance(level, np.ndarray) or level is None:
        return {}
    return {"noise (standard deviation)": f"{level:.3g}"}


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
    if view.pictures:
        show_pictures(view.pictures)
    if not view.cells:
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
