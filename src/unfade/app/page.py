"""The page itself, a Streamlit script: three steps, data, settings, results. All it keeps is on its desk."""

import hmac
import html
import os
import re
from typing import Any, Literal

import numpy as np
import pandas as pd
import streamlit as st
from PIL import Image
from streamlit import runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

from unfade.app import KEY_VARIABLE, RETURN_SECONDS, UPLOAD_MEGABYTES, WAIT_SECONDS
from unfade.app.desks import DESKS, Desk
from unfade.app.work import ColumnFacts, Job, Loaded, Result, Settings, lasting, picture, row_view
from unfade.errors import UnfadeError

KINDS = {
    "continuous": "number",
    "integer": "whole number",
    "boolean": "yes or no",
    "date": "date",
    "time": "time of day",
    "duration": "duration",
    "ordinal": "category with an order",
    "category": "category",
    "passthrough": "left out, passes through",
}
NOISE = {
    "none": "They are exact: keep them as they are",
    "learn": "They carry noise: find out how much, column by column",
    "learn-shared": "They carry noise: find out how much, one level relative to each column's spread",
    "number": "They carry noise, and I know how much",
}
FILLS = {
    "mean": "the mean of what is likely",
    "median": "the median of what is likely",
    "draw": "one draw: values spread as much as in the data",
}
ADDRESS = "session"  # the part of the address that leads back to a desk after a reload
DEFAULTS = {"noise": "none", "level": None, "draws": 20, "seed": 0, "seconds": None, "missing": "", "fill": "mean"}
MOST_BARS = 40
STYLE = """
<style>
.block-container { max-width: 1160px; padding-top: 2.2rem; padding-bottom: 5rem; }
.unfade-bars { display: grid; grid-template-columns: minmax(5rem, max-content) auto 1fr 3.4rem; gap: .35rem .9rem;
  align-items: center; font-size: .92rem; }
.unfade-bars .name { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; max-width: 14rem; font-weight: 600; }
.unfade-bars .kind { opacity: .65; white-space: nowrap; }
.unfade-bars .bar { height: .65rem; border-radius: .35rem; background: rgba(128, 138, 148, .2); overflow: hidden; }
.unfade-bars .bar div { height: 100%; background: #2f6f8f; border-radius: .35rem; }
.unfade-bars .share { text-align: right; font-variant-numeric: tabular-nums; }
.unfade-facts { display: flex; flex-wrap: wrap; gap: .4rem 2.4rem; margin: .2rem 0 1rem; }
.unfade-facts b { display: block; font-size: 1.45rem; font-weight: 600; line-height: 1.3; }
.unfade-facts span { opacity: .7; font-size: .88rem; }
@media (max-width: 640px) {
  .block-container { padding-left: 1rem; padding-right: 1rem; padding-top: 2rem; }
  .unfade-bars { grid-template-columns: minmax(3rem, 6.5rem) auto 1fr 2.8rem; gap: .35rem .6rem; font-size: .85rem; }
  .unfade-facts { gap: .4rem 1.6rem; }
  .unfade-facts b { font-size: 1.2rem; }
}
</style>
"""


def main() -> None:
    """The whole page, from top to bottom."""
    st.set_page_config(page_title="unfade", page_icon=icon(), layout="wide")
    st.html(STYLE)
    st.title("unfade", anchor=False)
    if not admitted():
        st.error("This page needs its key. Open the address that unfade printed when it was started, all of it.")
        st.stop()
    st.markdown(
        "Fills the holes of a table or of images, takes noise away, and says how sure it is of every value. "
        "Your data stay on this computer."
    )
    desk = own_desk()
    with st.container(border=True):
        loaded = data_step(desk)
    if loaded is None:
        return
    busy = desk.busy
    with st.container(border=True):
        settings = settings_step(desk, loaded, busy)
        if st.button("Fill and clean", type="primary", disabled=busy or settings is None) and settings is not None:
            desk.start(settings)
            st.rerun()
    if desk.job is not None:
        with st.container(border=True):
            results_step(loaded, desk.job, settings)


def icon() -> Image.Image:
    """A square that fades; Streamlit would fetch icons that it has names for from the internet."""
    fading = np.linspace(0, 1, 32)[None, :, None]
    colours = (1 - fading) * np.array([47, 111, 143]) + fading * np.array([226, 234, 239])
    return Image.fromarray(np.broadcast_to(colours, (32, 32, 3)).astype(np.uint8))


def admitted() -> bool:
    """Whether the address holds the key."""
    key, given = os.environ.get(KEY_VARIABLE, ""), str(st.query_params.get("key", ""))
    return bool(key) and hmac.compare_digest(given.encode(), key.encode())


def plain(text: str) -> str:
    """Text of the data or of a message, so that it is shown as it is: nothing in it is taken for markup."""
    return re.sub(r"([\\`*_{}\[\]()#+\-.!|~$<>&:])", r"\\\1", " ".join(text.split()))


def own_desk() -> Desk:
    """What this person has: by what the session knows, after a reload by what the address holds."""
    context, server = get_script_run_ctx(), runtime.get_instance()
    word = st.session_state.get("desk") or str(st.query_params.get(ADDRESS, ""))
    desk = DESKS.at(word, context.session_id if context is not None else "", server.is_active_session)
    st.session_state.desk = desk.word
    if st.query_params.get(ADDRESS) != desk.word:
        st.query_params[ADDRESS] = desk.word
    if word and word != desk.word:
        st.session_state.gone = True
    return desk


def data_step(desk: Desk) -> Loaded | None:
    """Step 1: a file comes in, and what is in it is shown."""
    st.subheader("1 · Data", anchor=False)
    with st.spinner("Reading the file"), desk.lock:  # another session of this person may be at it
        loaded = desk.mark(marks(desk))
    if loaded is None:
        ask_for_file(desk)
        return None
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f"**{plain(loaded.name)}**", width="content")
        if st.button("Load another file", disabled=desk.busy):
            desk.clear()
            st.rerun()
    show_data(loaded)
    return loaded


def ask_for_file(desk: Desk) -> None:
    """Take a file, which the desk keeps: Streamlit forgets it at a reload. Any may come: what is not taken is told why."""
    if st.session_state.get("gone"):
        st.info(f"What this page had is gone: it is kept for {lasting(RETURN_SECONDS)} after the page was closed.")
    upload = st.file_uploader(
        f"A table (CSV, Parquet, Feather) or an array of images (.npy, .npz), up to {UPLOAD_MEGABYTES} MB. "
        "Empty cells and NaN are missing.",
        on_change=desk.clear,
    )
    if upload is not None and desk.file != upload.file_id:
        with st.spinner("Reading the file"):
            desk.take(upload.file_id, upload.name, upload.getbuffer())
    if desk.problem:
        st.error(plain(desk.problem))
    if desk.loaded is not None:
        st.session_state.gone = False
        context = get_script_run_ctx()
        if context is not None:
            runtime.get_instance().uploaded_file_mgr.remove_session_files(context.session_id)
        st.rerun()


def recall(desk: Desk, name: str, default: Any) -> Any:
    """What a widget of that name shows: in a new session what was chosen before; while work runs, what it began with.

    Streamlit drops what was chosen just before a widget was disabled, unless it is said again.
    """
    if name not in st.session_state or desk.busy:
        st.session_state[name] = desk.choices.get(name, default)
    return st.session_state[name]


def marks(desk: Desk) -> tuple[str, ...]:
    """Values that stand for missing, as they were typed."""
    return tuple(filter(None, (word.strip() for word in str(recall(desk, "missing", "")).split(","))))


def show_data(loaded: Loaded) -> None:
    """How much there is, what is missing, and the first rows."""
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
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown("**What is missing**")
        show_bars(loaded.columns, loaded.rows)
    with right:
        st.markdown("**The first rows**")
        st.dataframe(frame(loaded.part(0, 50)), height=min(320, 36 * (min(50, loaded.rows) + 1) + 2), hide_index=False)
    for column in loaded.columns:
        if column.problem:
            st.warning(plain(column.problem))


def show_facts(facts: dict[str, str]) -> None:
    """A few numbers in a line, each with what it is."""
    cells = "".join(
        f"<div><b>{html.escape(value)}</b><span>{html.escape(name)}</span></div>" for name, value in facts.items()
    )
    st.html(f'<div class="unfade-facts">{cells}</div>')


def show_bars(columns: tuple[ColumnFacts, ...], rows: int) -> None:
    """The share that is missing, a bar a column; of many columns the emptiest."""
    shown = columns
    if len(columns) > MOST_BARS:
        shown = tuple(sorted(columns, key=lambda column: -column.missing)[:MOST_BARS])
    lines = "".join(bar(column, column.missing / rows) for column in shown)
    st.html(f'<div class="unfade-bars">{lines}</div>')
    if len(shown) < len(columns):
        st.caption(f"The {MOST_BARS} emptiest of {len(columns):,} columns.")


def bar(column: ColumnFacts, share: float) -> str:
    """A line of the picture: name, kind, bar, share."""
    name, kind = html.escape(column.name), KINDS[column.kind].split(",")[0]
    return (
        f'<div class="name" title="{name}">{name}</div><div class="kind">{kind}</div>'
        f'<div class="bar"><div style="width: {100 * share:.1f}%"></div></div><div class="share">{percent(share)}</div>'
    )


def percent(share: float) -> str:
    """A share in words, never rounded to nothing or to all of it."""
    if 0 < share < 0.01:
        return "< 1 %"
    return "> 99 %" if 0.99 < share < 1 else f"{share:.0%}".replace("%", " %")


def show_images(loaded: Loaded) -> None:
    """The first images; what is missing is blue."""
    if len(loaded.event_shape) == 2:
        first = np.asarray(loaded.part(0, 8), dtype=float)
        low, high = (0.0, 1.0) if np.isnan(first).all() else (float(np.nanmin(first)), float(np.nanmax(first)))
        show_pictures([(f"row {i}", picture(image, low, high, 110)) for i, image in enumerate(first)])
        st.caption("The first images; missing pixels are blue.")


def show_pictures(pictures: list[tuple[str, np.ndarray]]) -> None:
    """Pictures side by side, with their names."""
    with st.container(horizontal=True):
        for name, image in pictures:
            st.image(image, caption=name)


def frame(table: Any) -> pd.DataFrame:
    """A part of the data as Streamlit shows it."""
    return pd.DataFrame(table) if isinstance(table, np.ndarray) else table.to_pandas()


def settings_step(desk: Desk, loaded: Loaded, busy: bool) -> Settings | None:
    """Step 2: what a person says about the data. None while something is still to be said."""
    st.subheader("2 · Settings", anchor=False)
    st.caption("All of them can stay as they are.")
    for name, default in DEFAULTS.items():
        recall(desk, name, default)
    left, right = st.columns(2, gap="medium")
    with left:
        choice = st.radio(
            "How exact are the values that are there?", list(NOISE), format_func=lambda kind: NOISE[kind], key="noise",
            disabled=busy,
        )  # fmt: skip
        noise: float | str | None = {"none": None, "number": 0.0}.get(choice, choice)
        if choice == "number":
            noise = st.number_input(
                "Standard deviation of the noise, in the units of the data", key="level",
                min_value=0.0, value=None, placeholder="such as 0.3", format="%.6g", disabled=busy,
            )  # fmt: skip
        kinds = {} if isinstance(loaded.table, np.ndarray) else choose_kinds(desk, loaded.columns, busy)
    with right:
        draws, seed, seconds = choose_numbers(busy)
        fill = more_settings(not isinstance(loaded.table, np.ndarray), busy)
    for name, value in ((str(name), value) for name, value in st.session_state.items()):
        if not busy and (name in DEFAULTS or name.startswith("kind")):
            desk.choices[name] = value
    if choice == "number" and noise is None:
        st.info("Say how large the noise is.")
        return None
    return Settings(noise, kinds, loaded.marks, fill, draws, seed, seconds)


def choose_numbers(busy: bool) -> tuple[int, int, float | None]:
    """Number of draws, seed, time limit."""
    draws = st.number_input(
        "Number of draws", min_value=1, max_value=1000, key="draws", disabled=busy,
        help="Complete versions of the data, each as likely as the others. Where they differ, nobody can be sure.",
    )  # fmt: skip
    first, second = st.columns(2)
    seed = first.number_input(
        "Seed", min_value=0, max_value=2**32 - 1, key="seed", disabled=busy, help="The same seed gives the same results."
    )
    seconds = second.number_input(
        "Time limit in seconds", min_value=1, max_value=86_400, value=None, key="seconds", placeholder="none",
        disabled=busy,
        help="The longest that all of it should take; learning has what the draws, the files and the report leave. "
        "Without a limit, learning ends when it no longer helps.",
    )  # fmt: skip
    return int(draws), int(seed), None if seconds is None else float(seconds)


def more_settings(table: bool, busy: bool) -> str:
    """Settings that few need; the values that stand for missing are read where the data are."""
    with st.expander("More settings"):
        if table:
            st.text_input(
                "Values that stand for missing, with commas between", key="missing", placeholder="such as -99, unknown",
                disabled=busy, help="Empty cells always do. Messages about the data call this setting missing.",
            )  # fmt: skip
        return st.selectbox(
            "Missing cells are filled with", list(FILLS), format_func=lambda fill: FILLS[fill], key="fill", disabled=busy,
            help="In the clean data. Of categories, the most frequent value takes the place of mean and median.",
        )  # fmt: skip


def choose_kinds(desk: Desk, columns: tuple[ColumnFacts, ...], busy: bool) -> dict[str, str]:
    """Kinds of columns that are not as found."""
    found = {column.name: column for column in columns}
    odd = [column.name for column in columns if column.problem]
    recall(desk, "kinds", odd)
    mended = {name for name in st.session_state.get("odd", ()) if name not in odd}  # by what stands for missing
    if not busy:
        left_out = {name for name in mended if st.session_state.get(f"kind of {name}") == "passthrough"}
        st.session_state["kinds"] = [name for name in st.session_state["kinds"] if name not in left_out]
        st.session_state["odd"] = odd
    wrong = st.multiselect(
        "Columns with a wrongly inferred type", list(found), placeholder="None: all are right", key="kinds",
        disabled=busy, help="What was found is written beside the bars above.",
    )  # fmt: skip
    chosen: dict[str, str] = {}
    for name in wrong:
        recall(desk, f"kind of {name}", found[name].kind)
        chosen[name] = st.selectbox(
            f"{plain(name)} is a", list(KINDS), format_func=lambda kind: KINDS[kind], key=f"kind of {name}", disabled=busy
        )
    return {name: kind for name, kind in chosen.items() if kind != found[name].kind or found[name].problem}


def results_step(loaded: Loaded, job: Job, settings: Settings | None) -> None:
    """Step 3: how far it is, then what came of it."""
    st.subheader("3 · Results", anchor=False)
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


def in_words(settings: Settings) -> dict[str, str]:
    """Settings by their names on the page."""
    noise = "exact" if settings.noise is None else NOISE.get(str(settings.noise), f"noise of {settings.noise}")
    kinds = ", ".join(f"{name} is a {KINDS[kind]}" for name, kind in settings.kinds.items())
    return {
        "values": noise.removeprefix("They carry noise: "),
        "kinds": kinds or "as found",
        "stand for missing": ", ".join(settings.missing) or "empty cells alone",
        "filled with": FILLS[settings.fill].split(":")[0],
        "draws": str(settings.draws),
        "seed": str(settings.seed),
        "time limit": "none" if settings.seconds is None else lasting(settings.seconds),
    }


def changed(before: Settings, now: Settings | None) -> str:
    """What differs from the settings that results were made with."""
    old, new = in_words(before), {} if now is None else in_words(now)
    each = [f"{name} was {old[name]}, now {value}" for name, value in new.items() if value != old[name]]
    return (
        f"Settings have changed since these results were made ({'; '.join(each) or 'some are still to be said'}). "
        "The results below belong to the settings from before. Press Fill and clean for new ones."
    )


@st.fragment(run_every=1.0)
def watch() -> None:
    """A bar that moves by itself, and a way out."""
    desk = own_desk()
    if desk.job is None or not desk.busy:
        st.rerun()
    else:
        status = desk.job.status
        st.progress(status.share, text=str(status))
        for notice in desk.job.notices:
            st.info(plain(notice))
        st.caption(f"Keep this page open. After {WAIT_SECONDS} seconds without it the work is stopped.")
        if st.button("Cancel"):
            desk.stop()
            st.rerun()


def show_result(loaded: Loaded, result: Result) -> None:
    """Facts, files, report, rows."""
    show_facts(
        {
            "cells filled": f"{result.missing - result.left:,}",
            "still missing": f"{result.left:,}",
            **noise_facts(result),
            "time taken": lasting(result.seconds),
        }
    )
    made = " · ".join(f"{name}: {value}" for name, value in in_words(result.settings).items())
    st.caption(plain(f"Made with these settings. {made}"))
    with st.container(horizontal=True):
        offer("Clean data", result.clean, f"{loaded.stem}-clean{loaded.ending}", primary=True)
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
    """The noise level, where there is one for all."""
    level = result.recoverer.noise_
    if result.settings.noise is None or isinstance(level, np.ndarray) or level is None:
        return {}
    return {"noise (standard deviation)": f"{level:.3g}"}


def offer(what: str, path: Any, name: str, primary: bool = False) -> None:
    """A button that gives a file, where there is one."""
    if path is not None:
        kind: Literal["primary", "secondary"] = "primary" if primary else "secondary"
        st.download_button(what, path.read_bytes, file_name=name, on_click="ignore", type=kind, icon=":material/download:")


def boxed(report: str) -> str:
    """The report in a frame that can neither reach this page nor the network."""
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; font-src data:"
    return (
        f'<!doctype html><meta http-equiv="Content-Security-Policy" content="{policy}; frame-src \'self\'">'
        "<style>html, body, iframe { margin: 0; border: 0; width: 100%; height: 100%; display: block; }</style>"
        f'<iframe title="Report" sandbox="allow-scripts" srcdoc="{html.escape(report)}"></iframe>'
    )


@st.fragment
def show_row(loaded: Loaded, result: Result) -> None:
    """The draws of any row, and what they say of its cells."""
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
            "as it came": [cell.came for cell in view.cells],
            "clean": [cell.clean for cell in view.cells],
            "likely values": [cell.likely for cell in view.cells],
            "what was done": [cell.became for cell in view.cells],
        }
    )
    st.dataframe(cells, hide_index=True)
    st.caption("Likely values: nine draws in ten lie between these two; of categories, how often each is drawn.")
    st.markdown(f"**Its {len(view.draws)} draws**")
    st.dataframe(pd.DataFrame(view.draws).rename_axis("draw"))


if __name__ == "__main__":
    main()
