"""Elements of the page: facts, gaps, verdicts, parts of the work, pictures, downloads, the report in a frame, the style."""

import base64
import html
import io
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import streamlit as st
from PIL import Image

from unfade.app.jobs import lasting
from unfade.app.timing import Part
from unfade.app.uploads import ColumnFacts
from unfade.diagnostics.checks import Diagnosis, Verdict
from unfade.diagnostics.markup import picture

KINDS = {
    "continuous": "number",
    "integer": "integer",
    "boolean": "yes or no",
    "date": "date",
    "time": "time of day",
    "duration": "duration",
    "ordinal": "category with an order",
    "category": "category",
    "passthrough": "not used, left unchanged",
}
MOST_BARS = 40
STYLE = """
<style>
.block-container { max-width: 1160px; padding-top: 2.2rem; padding-bottom: 5rem; }
.block-container h2 { font-size: 1.6rem; padding-top: .6rem; }
[data-testid="stCaptionContainer"] { color: #5b6570 !important; opacity: 1 !important; }
.unfade-bars { display: grid; grid-template-columns: minmax(5rem, max-content) auto 1fr 3.4rem; gap: .35rem .9rem;
  align-items: center; font-size: .92rem; }
.unfade-bars .name { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; max-width: 14rem; font-weight: 600; }
.unfade-bars .kind { color: #5b6570; white-space: nowrap; }
.unfade-bars img { width: 100%; height: 1.05rem; image-rendering: pixelated; border-radius: .2rem; display: block; }
.unfade-bars .share { text-align: right; font-variant-numeric: tabular-nums; }
.unfade-facts { display: flex; flex-wrap: wrap; gap: .4rem 2.4rem; margin: .2rem 0 1rem; }
.unfade-facts b { display: block; font-size: 1.45rem; font-weight: 600; line-height: 1.3; }
.unfade-facts span { color: #5b6570; font-size: .88rem; }
.unfade-table { overflow: auto; max-height: 26rem; border: 1px solid #d5dbe0; border-radius: .4rem; }
.unfade-table table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; width: 100%; }
.unfade-table th { position: sticky; top: 0; background: #eef2f5; color: #222; text-align: left; padding: .3rem .7rem;
  white-space: nowrap; }
.unfade-table td { padding: .2rem .7rem; border-top: 1px solid #e6eaed; white-space: nowrap; max-width: 16rem;
  overflow: hidden; text-overflow: ellipsis; }
.unfade-table td.row { color: #5b6570; } .unfade-table td.number { text-align: right; }
.unfade-table mark, .unfade-key mark { padding: .05rem .3rem; border-radius: .2rem; color: #10232e; }
mark.filled { background: #cde6f5; font-weight: 600; } mark.cleaned { background: #fbe3c0; }
mark.gone { background: #e3e7ea; color: #444 !important; }
.unfade-key { font-size: .88rem; color: #5b6570; margin: .3rem 0; }
.unfade-verdict { padding: .6rem 1rem; border-left: .35rem solid; background: #f3f6f8; color: #222; font-size: 1.05rem; }
.unfade-verdict.green { border-color: #00785a; } .unfade-verdict.amber { border-color: #a86400; }
.unfade-verdict.red { border-color: #b03a00; }
.unfade-checks { list-style: none; padding: 0; margin: .6rem 0; font-size: .94rem; }
.unfade-checks li { margin: .35rem 0; } .unfade-checks b { margin-right: .3rem; }
.unfade-checks .sign { display: inline-block; width: 1.3rem; height: 1.3rem; line-height: 1.3rem; margin-right: .5rem;
  border-radius: 50%; color: #fff; text-align: center; font-size: .8rem; font-weight: 700; }
.sign.green { background: #00785a; } .sign.amber { background: #a86400; } .sign.red { background: #b03a00; }
.unfade-parts { list-style: none; padding: 0; margin: .3rem 0; font-size: .92rem; max-width: 26rem; }
.unfade-parts li { display: flex; justify-content: space-between; padding: .12rem 0; }
.unfade-parts .now { font-weight: 600; } .unfade-parts .later { color: #5b6570; }
.unfade-pictures { display: flex; flex-wrap: wrap; gap: .9rem; }
.unfade-pictures figure { margin: 0; text-align: center; font-size: .88rem; color: #5b6570; }
.unfade-pictures img { display: block; height: 10rem; max-width: 100%; image-rendering: pixelated; border-radius: .2rem; }
.unfade-picture img { width: 100%; max-width: 46rem; height: auto; background: #fff; }
@media (max-width: 640px) {
  .block-container { padding-left: 1rem; padding-right: 1rem; padding-top: 2rem; }
  .unfade-bars { grid-template-columns: minmax(3rem, 6.5rem) auto 1fr 2.8rem; gap: .35rem .6rem; font-size: .85rem; }
  .unfade-facts { gap: .4rem 1.6rem; }
  .unfade-facts b { font-size: 1.2rem; }
  .unfade-pictures img { height: 6.4rem; }
}
</style>
"""
SIGNS = {"green": "&#10003;", "amber": "!", "red": "&#10007;"}
GONE, THERE = np.array([213, 94, 0]), np.array([221, 232, 239])  # colours of missing and of observed cells


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


def show_gaps(columns: tuple[ColumnFacts, ...], rows: int) -> None:
    """Show where cells are missing: a strip per column, from the first row to the last; of many columns the emptiest."""
    shown = columns
    if len(columns) > MOST_BARS:
        shown = tuple(sorted(columns, key=lambda column: -column.missing)[:MOST_BARS])
    lines = "".join(strip(column, column.missing / rows) for column in shown)
    st.html(f'<div class="unfade-bars">{lines}</div>')
    words = "Orange: missing cells, from the first row (left) to the last."
    more = f" The {MOST_BARS} emptiest of {len(columns):,} columns." if len(shown) < len(columns) else ""
    st.caption(words + more)


def strip(column: ColumnFacts, share: float) -> str:
    """Format the line of a column: name, kind, where its cells are missing, their share."""
    name, kind = html.escape(column.name), KINDS[column.kind].split(",")[0]
    gaps = np.asarray(column.gaps or (0.0,))[:, None]
    colours = ((1 - gaps) * THERE + gaps * GONE).round().astype(np.uint8)[None]
    return (
        f'<div class="name" title="{name}">{name}</div><div class="kind">{kind}</div>'
        f'<img src="{as_source(colours)}" alt="{percent(share)} of {name} missing">'
        f'<div class="share">{percent(share)}</div>'
    )


def show_verdict(found: Diagnosis) -> None:
    """Show the verdict of all checks, then each check that did not pass; the others folded."""
    passed = [verdict for verdict in found.verdicts if verdict.level == "green"]
    st.html(f'<p class="unfade-verdict {found.level}"><b>{found.summary}</b></p>')
    st.html(checks([verdict for verdict in found.verdicts if verdict.level != "green"]))
    with st.expander("Checks that passed"):
        st.html(checks(passed) or "None.")


def checks(verdicts: Sequence[Verdict]) -> str:
    """Format verdicts as a list."""
    lines = "".join(
        f'<li><span class="sign {v.level}" aria-hidden="true">{SIGNS[v.level]}</span><b>{html.escape(v.what)}</b>'
        f"({v.level}) {html.escape(v.says)} <i>{html.escape(v.todo)}</i></li>"
        for v in verdicts
    )
    return f'<ul class="unfade-checks">{lines}</ul>' if lines else "<span></span>"


def show_parts(parts: Sequence[Part]) -> None:
    """Show the parts of the work: what each took, or how long it is expected to take still."""
    words = {"done": "{} taken", "now": "about {} left", "later": "about {}"}
    signs = {"done": "&#10003;", "now": "&#9656;", "later": "&#183;"}
    lines = "".join(
        f'<li class="{part.state}"><span>{signs[part.state]} {part.name}</span>'
        f"<span>{words[part.state].format(lasting(max(1.0, part.seconds)))}</span></li>"
        for part in parts
    )
    st.html(f'<ul class="unfade-parts">{lines}</ul>')


def show_figure(draw: Callable[[Any], None], size: tuple[float, float], says: str) -> None:
    """Show a picture made by matplotlib, with a description for readers who cannot see it."""
    alt = html.escape(says, quote=True)
    st.html(f'<div class="unfade-picture"><img alt="{alt}" src="{picture(draw, size, 110)}"></div>')


def percent(share: float) -> str:
    """Write a share in percent, never rounded to 0 % or 100 %."""
    if 0 < share < 0.01:
        return "< 1 %"
    return "> 99 %" if 0.99 < share < 1 else f"{share:.0%}".replace("%", " %")


def show_pictures(pictures: list[tuple[str, np.ndarray]]) -> None:
    """Show pictures side by side, with their names."""
    parts = "".join(
        f'<figure><img alt="{name}" src="{as_source(image)}"><figcaption>{name}</figcaption></figure>'
        for name, image in ((html.escape(name), image) for name, image in pictures)
    )
    st.html(f'<div class="unfade-pictures">{parts}</div>')


def as_source(image: np.ndarray) -> str:
    """Return an image as an address that holds it, without loss."""
    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


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
