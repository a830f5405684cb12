"""Step 2 of the page: the settings, their names there, and earlier choices."""

from typing import Any

import numpy as np
import streamlit as st

from unfade.app.elements import KINDS, plain
from unfade.app.jobs import RULES, Settings, lasting
from unfade.app.uploads import ColumnFacts, Loaded
from unfade.app.workspaces import Workspace

NOISE = {
    "none": "They are exact: keep them unchanged",
    "learn": "They carry noise: estimate its level per column",
    "learn-shared": "They carry noise: estimate one level, relative to each column's standard deviation",
    "number": "They carry noise of a known level",
}
FILLS = {
    "mean": "the posterior mean",
    "median": "the posterior median",
    "draw": "one draw: values vary as much as in the data",
}
DEFAULTS: dict[str, Any] = {
    "noise": "none", "level": None, "draws": 20, "seed": 0, "seconds": None, "missing": "", "fill": "mean",
    "time": "", "panel": [], "rules": "",
}  # fmt: skip


def settings_step(workspace: Workspace, loaded: Loaded, busy: bool) -> Settings | None:
    """Run step 2: ask for the settings. None while an answer is missing."""
    st.header("2 · Settings", anchor=False)
    for name, default in DEFAULTS.items():
        recall(workspace, name, default)
    there = {column.name for column in loaded.columns}
    st.session_state["time"] = st.session_state["time"] if st.session_state["time"] in there else ""
    st.session_state["panel"] = [name for name in st.session_state["panel"] if name in there]
    st.markdown(summary())
    opened = st.session_state.setdefault(f"unfold {loaded.name}", any(column.problem for column in loaded.columns))
    with st.expander("Change settings", expanded=opened):  # a label or state that changes would fold it again
        chosen = ask(workspace, loaded, busy)
    for name, value in ((str(name), value) for name, value in st.session_state.items()):
        if not busy and (name in DEFAULTS or name.startswith("kind")):
            workspace.choices[name] = value
    return chosen


def summary() -> str:
    """Describe the settings in one line."""
    noise = {"none": "exact", "number": "noisy, with a known level"}.get(st.session_state["noise"], "noisy")
    changed = sum(st.session_state[name] != default for name, default in DEFAULTS.items() if name != "noise")
    others = f"{changed} other setting{'s' * (changed > 1)} changed" if changed else "all else by default"
    return f"Observed values are **{noise}**; {others}."


def ask(workspace: Workspace, loaded: Loaded, busy: bool) -> Settings | None:
    """Ask for the settings, two columns side by side. None while an answer is missing."""
    left, right = st.columns(2, gap="medium")
    with left:
        choice = st.radio(
            "How exact are the observed values?", list(NOISE), format_func=lambda kind: NOISE[kind], key="noise",
            disabled=busy,
        )  # fmt: skip
        noise: float | str | None = {"none": None, "number": 0.0}.get(choice, choice)
        if choice == "number":
            noise = st.number_input(
                "Standard deviation of the noise, in the units of the data", key="level",
                min_value=0.0, value=None, placeholder="such as 0.3", format="%.6g", disabled=busy,
            )  # fmt: skip
        frames = not isinstance(loaded.table, np.ndarray)
        kinds = choose_kinds(workspace, loaded.columns, busy) if frames else {}
        moment, panel, rules = about_rows([column.name for column in loaded.columns], busy) if frames else (None, (), "")
    with right:
        draws, seed, seconds = choose_numbers(busy)
        fill = more_settings(frames, busy)
    if choice == "number" and noise is None:
        st.info("Give the standard deviation of the noise.")
        return None
    return Settings(noise, kinds, loaded.marks, fill, draws, seed, seconds, moment, panel, rules)


def choose_numbers(busy: bool) -> tuple[int, int, float | None]:
    """Ask for the number of draws, the seed and the time limit."""
    draws = st.number_input(
        "Number of draws", min_value=1, max_value=1000, key="draws", disabled=busy,
        help="Completed data sets, each equally likely. Their differences show the uncertainty.",
    )  # fmt: skip
    first, second = st.columns(2)
    seed = first.number_input(
        "Seed", min_value=0, max_value=2**32 - 1, key="seed", disabled=busy, help="The same seed gives the same results."
    )
    seconds = second.number_input(
        "Time limit in seconds", min_value=1, max_value=86_400, value=None, key="seconds", placeholder="none",
        disabled=busy,
        help="Time limit of all parts; training gets the time that draws, files and report leave. "
        "Without a time limit, training ends by early stopping.",
    )  # fmt: skip
    return int(draws), int(seed), None if seconds is None else float(seconds)


def more_settings(table: bool, busy: bool) -> str:
    """Ask for values that stand for missing, and for the way of single imputation."""
    if table:
        st.text_input(
            "Values that stand for missing, with commas between", key="missing", placeholder="such as -99, unknown",
            disabled=busy, help="Empty cells always do. Messages call this setting missing.",
        )  # fmt: skip
    return st.selectbox(
        "Missing cells are filled with", list(FILLS), format_func=lambda fill: FILLS[fill], key="fill", disabled=busy,
        help="In the clean data. Of categories, the most frequent value takes the place of mean and median.",
    )  # fmt: skip


def about_rows(names: list[str], busy: bool) -> tuple[str | None, tuple[str, ...], str]:
    """Ask for the column of the time, those that identify series, and rules that hold between columns."""
    moment = st.selectbox(
        "Column with the time, if rows follow each other in time", names, index=None, key="time",
        placeholder="None: rows are in no order", disabled=busy,
        help="Gaps are then filled along time, one model for all series.",
    )  # fmt: skip
    panel = st.multiselect(
        "Columns that identify each of several series", names, key="panel", placeholder="None: one series", disabled=busy,
        help="Such as station or patient.",
    )  # fmt: skip
    rules = st.text_area(
        "Rules that hold in every row, one a line", key="rules", placeholder="\n".join(RULES), disabled=busy,
        help="Computed columns, sums, columns in order, and columns that have a value only if a condition holds.",
    )  # fmt: skip
    return moment, tuple(panel), rules


def choose_kinds(workspace: Workspace, columns: tuple[ColumnFacts, ...], busy: bool) -> dict[str, str]:
    """Ask for the kinds of columns that are inferred wrongly."""
    found = {column.name: column for column in columns}
    odd = [column.name for column in columns if column.problem]
    recall(workspace, "kinds", odd)
    mended = {name for name in st.session_state.get("odd", ()) if name not in odd}  # by what stands for missing
    if not busy:
        left_out = {name for name in mended if st.session_state.get(f"kind of {name}") == "passthrough"}
        st.session_state["kinds"] = [name for name in st.session_state["kinds"] if name not in left_out]
        st.session_state["odd"] = odd
    wrong = st.multiselect(
        "Columns with a wrongly inferred type", list(found), placeholder="None: all are correct", key="kinds",
        disabled=busy, help="The inferred types are shown next to the bars above.",
    )  # fmt: skip
    chosen: dict[str, str] = {}
    for name in wrong:
        recall(workspace, f"kind of {name}", found[name].kind)
        chosen[name] = st.selectbox(
            f"Type of {plain(name)}",
            list(KINDS),
            format_func=lambda kind: KINDS[kind],
            key=f"kind of {name}",
            disabled=busy,
        )
    return {name: kind for name, kind in chosen.items() if kind != found[name].kind or found[name].problem}


def recall(workspace: Workspace, name: str, default: Any) -> Any:
    """Restore the value of a widget: in a new session the earlier choice; during work the value that it began with.

    Streamlit drops a choice that was made just before a widget was disabled, unless it is set again.
    """
    if name not in st.session_state or workspace.busy:
        st.session_state[name] = workspace.choices.get(name, default)
    return st.session_state[name]


def marks(workspace: Workspace) -> tuple[str, ...]:
    """Return the values that stand for missing, as typed."""
    return tuple(filter(None, (word.strip() for word in str(recall(workspace, "missing", "")).split(","))))


def in_words(settings: Settings) -> dict[str, str]:
    """Describe settings by their names on the page."""
    noise = "exact" if settings.noise is None else NOISE.get(str(settings.noise), f"noise of {settings.noise}")
    kinds = ", ".join(f"{name}: {KINDS[kind]}" for name, kind in settings.kinds.items())
    return {
        "values": noise.removeprefix("They carry noise: "),
        "types": kinds or "as inferred",
        "stand for missing": ", ".join(settings.missing) or "empty cells alone",
        "filled with": FILLS[settings.fill].split(":")[0],
        "draws": str(settings.draws),
        "seed": str(settings.seed),
        "time limit": "none" if settings.seconds is None else lasting(settings.seconds),
        "time": settings.time or "none",
        "series": ", ".join(settings.panel) or "one",
        "rules": "; ".join(settings.rules.split("\n")) or "none",
    }


def changed(before: Settings, now: Settings | None) -> str:
    """Describe the differences from the settings of the results."""
    old, new = in_words(before), {} if now is None else in_words(now)
    each = [f"{name} was {old[name]}, now {value}" for name, value in new.items() if value != old[name]]
    return (
        f"Settings have changed since these results were made ({'; '.join(each) or 'some are not given yet'}). "
        "The results below belong to the earlier settings. Press Fill and clean for new ones."
    )
