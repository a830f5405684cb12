"""Elements of the page: facts, bars, pictures, download buttons, the report in a sandboxed frame, the style."""

import html
import re
from typing import Any, Literal

import numpy as np
import streamlit as st
from PIL import Image

from unfade.app.uploads import ColumnFacts

KINDS = {
    "continuous": "continuous",
    "integer": "integer",
    "boolean": "yes or no",
    "date": "date",
    "time": "time of day",
    "duration": "duration",
    "ordinal": "ordinal, a category with an order",
    "category": "category",
    "passthrough": "passthrough, not used",
}
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


def icon() -> Image.Image:
    """Draw a square that fades; Streamlit would fetch named icons from the internet."""
    fading = np.linspace(0, 1, 32)[None, :, None]
    colours = (1 - fading) * np.array([47, 111, 143]) + fading * np.array([226, 234, 239])
    return Image.fromarray(np.broadcast_to(colours, (32, 32, 3)).astype(np.uint8))


def plain(text: str) -> str:
    """Escape text of the data or of a message, so that no part of it is taken for markup."""
    return re.sub(r"([\\`*_{}\[\]()#+\-.!|~$<>&:])", r"\\\1", " ".join(text.split()))


def show_facts(facts: dict[str, str]) -> None:
    """Show numbers in a line, each with its name."""
    cells = "".join(
        f"<div><b>{html.escape(value)}</b><span>{html.escape(name)}</span></div>" for name, value in facts.items()
    )
    st.html(f'<div class="unfade-facts">{cells}</div>')


def show_bars(columns: tuple[ColumnFacts, ...], rows: int) -> None:
    """Show the share of missing cells, a bar per column; of many columns the emptiest."""
    shown = columns
    if len(columns) > MOST_BARS:
        shown = tuple(sorted(columns, key=lambda column: -column.missing)[:MOST_BARS])
    lines = "".join(bar(column, column.missing / rows) for column in shown)
    st.html(f'<div class="unfade-bars">{lines}</div>')
    if len(shown) < len(columns):
        st.caption(f"The {MOST_BARS} emptiest of {len(columns):,} columns.")


def bar(column: ColumnFacts, share: float) -> str:
    """Format the line of a column: name, kind, bar, share."""
    name, kind = html.escape(column.name), KINDS[column.kind].split(",")[0]
    return (
        f'<div class="name" title="{name}">{name}</div><div class="kind">{kind}</div>'
        f'<div class="bar"><div style="width: {100 * share:.1f}%"></div></div><div class="share">{percent(share)}</div>'
    )


def percent(share: float) -> str:
    """Write a share in percent, never rounded to 0 % or 100 %."""
    if 0 < share < 0.01:
        return "< 1 %"
    return "> 99 %" if 0.99 < share < 1 else f"{share:.0%}".replace("%", " %")


def show_pictures(pictures: list[tuple[str, np.ndarray]]) -> None:
    """Show pictures side by side, with their names."""
    with st.container(horizontal=True):
        for name, image in pictures:
            st.image(image, caption=name)


def offer(what: str, path: Any, name: str, primary: bool = False) -> None:
    """Show a download button, if there is a file."""
    if path is not None:
        kind: Literal["primary", "secondary"] = "primary" if primary else "secondary"
        st.download_button(what, path.read_bytes, file_name=name, on_click="ignore", type=kind, icon=":material/download:")


def boxed(report: str) -> str:
    """Put the report into a frame that can reach neither this page nor the network."""
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; font-src data:"
    return (
        f'<!doctype html><meta http-equiv="Content-Security-Policy" content="{policy}; frame-src \'self\'">'
        "<style>html, body, iframe { margin: 0; border: 0; width: 100%; height: 100%; display: block; }</style>"
        f'<iframe title="Report" sandbox="allow-scripts" srcdoc="{html.escape(report)}"></iframe>'
    )
