"""HTML of the report and of the page: sections, folded parts, tables, pictures with descriptions."""

import base64
import html
import io
from collections.abc import Callable, Sequence
from typing import Any


def short(value: Any) -> str:
    """Write a number in at most four digits, large ones without an exponent; other values by `str`."""
    if isinstance(value, float) and 1e4 <= abs(value) < 1e12:
        return f"{value:.0f}"  # not 1.318e+04
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def escaped(value: Any) -> str:
    """Write a value as text of a page."""
    return html.escape(short(value))


def section(title: str, *parts: str) -> str:
    """Write a section with a heading; empty if it has no parts."""
    inside = "".join(parts)
    return f"<section><h2>{title}</h2>{inside}</section>" if inside else ""


def folded(title: str, *parts: str) -> str:
    """Write a section that is folded until the reader opens it; empty if it has no parts."""
    inside = "".join(parts)
    return f"<details><summary><h2>{title}</h2></summary>{inside}</details>" if inside else ""


def table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Write a table that scrolls where it is wider than the page; empty if it has no rows."""
    if not rows:
        return ""
    top = "".join(f'<th scope="col">{escaped(head)}</th>' for head in heads)
    body = "".join(
        "<tr>" + "".join(f"<td{' class=n' if isinstance(v, (int, float)) else ''}>{escaped(v)}</td>" for v in row) + "</tr>"
        for row in rows
    )
    head = f"<thead><tr>{top}</tr></thead>"
    return f'<div class="scroll" tabindex="0"><table>{head}<tbody>{body}</tbody></table></div>'


def picture(draw: Callable[[Any], None], size: tuple[float, float], dpi: int = 90) -> str:
    """Draw a figure, and return it as an address that holds the picture itself."""
    from matplotlib.figure import Figure

    figure, file = Figure(figsize=size, layout="constrained"), io.BytesIO()
    draw(figure)
    figure.savefig(file, format="png", dpi=dpi)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def figure(draw: Callable[[Any], None], size: tuple[float, float], says: str, caption: str = "") -> str:
    """Embed a picture; says: its description for readers who cannot see it."""
    alt, words = html.escape(says, quote=True), html.escape(caption or says)
    return f'<figure tabindex="0"><img alt="{alt}" src="{picture(draw, size)}"><figcaption>{words}</figcaption></figure>'
