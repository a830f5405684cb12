"""The page, a Streamlit script in three steps: data, settings, results. Its state is in the workspace."""

import hmac
import os
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st
from streamlit import runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

from unfade.app import KEY_VARIABLE, RETURN_SECONDS, UPLOAD_MEGABYTES, WAIT_SECONDS
from unfade.app.elements import STYLE, icon, percent, plain, show_facts, show_gaps, show_parts, show_pictures
from unfade.app.jobs import Job, Settings, lasting
from unfade.app.results import show_result
from unfade.app.row_view import picture
from unfade.app.samples import SAMPLES
from unfade.app.settings_form import changed, marks, settings_step
from unfade.app.uploads import Loaded
from unfade.app.workspaces import WORKSPACES, Workspace

ADDRESS = "session"  # the part of the address that leads back to a workspace after a reload


def main() -> None:
    """Run the page from top to bottom."""
    st.set_page_config(page_title="unfade", page_icon=icon(), layout="wide")
    st.html(STYLE)
    st.title("unfade", anchor=False)
    if not admitted():
        st.error("This page needs its key. Open the address that unfade printed when it was started, all of it.")
        st.stop()
    st.markdown(
        "Fills missing values of a table or of images, removes noise, and gives the uncertainty of every value. "
        "Your data stay on this computer."
    )
    workspace = own_workspace()
    with st.container(border=True):
        loaded = data_step(workspace)
    if loaded is None:
        return
    busy = workspace.busy
    with st.container(border=True):
        settings = settings_step(workspace, loaded, busy)
        if st.button("Fill and clean", type="primary", disabled=busy or settings is None) and settings is not None:
            workspace.start(settings)
            st.rerun()
    if workspace.job is not None:
        with st.container(border=True):
            results_step(loaded, workspace.job, settings)


def admitted() -> bool:
    """Check whether the address holds the key."""
    key, given = os.environ.get(KEY_VARIABLE, ""), str(st.query_params.get("key", ""))
    return bool(key) and hmac.compare_digest(given.encode(), key.encode())


def own_workspace() -> Workspace:
    """Find the workspace of this user: by the session, after a reload by the address."""
    context, server = get_script_run_ctx(), runtime.get_instance()
    word = st.session_state.get("workspace") or str(st.query_params.get(ADDRESS, ""))
    workspace = WORKSPACES.at(word, context.session_id if context is not None else "", server.is_active_session)
    st.session_state.workspace = workspace.word
    if st.query_params.get(ADDRESS) != workspace.word:
        st.query_params[ADDRESS] = workspace.word
    if word and word != workspace.word:
        st.session_state.gone = True
    return workspace


def data_step(workspace: Workspace) -> Loaded | None:
    """Run step 1: load a file, and show its contents."""
    st.header("1 · Data", anchor=False)
    with st.spinner("Reading the file"), workspace.lock:  # another session of this person may be at it
        loaded = workspace.mark(marks(workspace))
    if loaded is None:
        ask_for_file(workspace)
        return None
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f"**{plain(loaded.name)}**", width="content")
        if st.button("Load another file", disabled=workspace.busy):
            workspace.clear()
            st.rerun()
    show_data(loaded, workspace.job is not None)
    return loaded


def ask_for_file(workspace: Workspace) -> None:
    """Take a file into the workspace, as Streamlit forgets it at a reload; show why a file cannot be used."""
    if st.session_state.get("gone"):
        st.info(
            f"The data of this page were deleted: they are kept for {lasting(RETURN_SECONDS)} after the page is closed."
        )
    left, right = st.columns([3, 2], gap="large")
    with left:
        upload = st.file_uploader(
            f"A table (CSV, Excel, SPSS, Stata, Parquet, Feather) or images (.npy, .npz), up to {UPLOAD_MEGABYTES} MB. "
            "Empty cells and NaN are missing.",
            on_change=workspace.clear,
        )
    with right:
        st.markdown("No file at hand? Try a sample.")
        for sample in SAMPLES:
            if st.button(f"{sample.title}: {sample.says}", key=f"sample {sample.name}", width="stretch"):
                workspace.take(sample.name, sample.name, sample.make())
                workspace.choices.update(sample.choices)
                for name, value in sample.choices.items():
                    st.session_state[name] = value
    if upload is not None and workspace.file != upload.file_id:
        with st.spinner("Reading the file"):
            workspace.take(upload.file_id, upload.name, upload.getbuffer())
    if workspace.problem:
        st.error(plain(workspace.problem))
    if workspace.loaded is not None:
        st.session_state.gone = False
        context = get_script_run_ctx()
        if context is not None:
            runtime.get_instance().uploaded_file_mgr.remove_session_files(context.session_id)
        st.rerun()


def show_data(loaded: Loaded, folded: bool) -> None:
    """Show size, missing cells, and the first rows; folded once there are results, which matter more then."""
    across = f"{len(loaded.columns):,}" if loaded.columns else " × ".join(map(str, loaded.event_shape))
    show_facts(
        {
            "rows" if loaded.columns else "images": f"{loaded.rows:,}",
            "columns" if loaded.columns else "pixels each": across,
            "missing cells": f"{loaded.missing:,} ({percent(loaded.missing / loaded.cells if loaded.cells else 0.0)})",
        }
    )
    if not loaded.columns:
        show_images(loaded)
        return
    for column in loaded.columns:
        if column.problem:
            st.warning(plain(column.problem))
    if folded:
        with st.expander("Missing cells per column, and the first rows"):
            show_columns(loaded)
    else:
        show_columns(loaded)


def show_columns(loaded: Loaded) -> None:
    """Show where cells of a table are missing, and its first rows."""
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown("**Missing cells per column**")
        show_gaps(loaded.columns, loaded.rows)
    with right:
        st.markdown("**First rows**")
        st.dataframe(frame(loaded.part(0, 50)), height=min(320, 36 * (min(50, loaded.rows) + 1) + 2), hide_index=False)


def show_images(loaded: Loaded) -> None:
    """Show the first images, with missing pixels in blue."""
    if len(loaded.event_shape) == 2:
        first = np.asarray(loaded.part(0, 8), dtype=float)
        low, high = (0.0, 1.0) if np.isnan(first).all() else (float(np.nanmin(first)), float(np.nanmax(first)))
        show_pictures([(f"image {i}", picture(image, low, high, 110)) for i, image in enumerate(first)])
        st.caption("The first images; missing pixels are blue.")


def frame(table: Any) -> pd.DataFrame:
    """Convert part of the data to pandas, for Streamlit."""
    return pd.DataFrame(table) if isinstance(table, np.ndarray) else table.to_pandas()


def results_step(loaded: Loaded, job: Job, settings: Settings | None) -> None:
    """Run step 3: show the progress, then the results."""
    st.header("3 · Results", anchor=False)
    if job.running:
        watch()
        return
    if job.result is not None and job.settings != settings:
        st.warning(plain(changed(job.settings, settings)))
    for notice in job.notices:
        st.info(plain(notice))
    if job.result is not None:
        show_result(loaded, job.result)
    else:
        st.error(plain(job.error or "There is no result."))


@st.fragment(run_every=1.0)
def watch() -> None:
    """Show a progress bar that updates itself, and a cancel button."""
    workspace = own_workspace()
    if workspace.job is None or not workspace.busy:
        st.rerun()
    else:
        status = workspace.job.status
        st.progress(status.share, text=str(status))
        show_parts(workspace.job.parts)
        for notice in workspace.job.notices:
            st.info(plain(notice))
        st.caption(f"Keep this page open. After {WAIT_SECONDS} seconds without it the work is stopped.")
        if st.button("Cancel"):
            workspace.stop()
            st.rerun()


if __name__ == "__main__":
    main()
