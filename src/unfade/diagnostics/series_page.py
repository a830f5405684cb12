"""Series on a page: a stretch that the reader zooms into, drawn by a script that needs nothing from the network."""

import html
import json
from itertools import count
from typing import Any

import numpy as np

from unfade.data.dataset import Dataset
from unfade.data.timeline import DAY
from unfade.diagnostics.series import columns_of, stretch

STEPS = 2000  # of the stretch
_NUMBERS = count(1)  # of pictures on a page
_STYLE = (
    "<style>.series{font-family:system-ui,sans-serif}"
    ".series svg{display:block;width:100%;height:auto;touch-action:pan-y;cursor:grab;background:#fff}"
    ".series text{font:11px sans-serif;fill:#444}.series button{font:inherit;padding:.1rem .7rem;margin-right:.3rem}"
    ".series .key span{margin-right:1.1rem;white-space:nowrap}.series .key i{display:inline-block;width:1.2em;height:.55em;"
    "margin-right:.3em}</style>"
)
_COLOURS = {
    "#0072B2": "observed",
    "#000": "mean",
    "#f7dca6": "90 % of draws",
    "#E69F00": "three draws",
    "#ddd": "missing",
}
_KEY = "".join(f'<span><i style="background:{colour}"></i>{words}</span>' for colour, words in _COLOURS.items())
_SCRIPT = """
(() => {
const ID = IDENTITY, d = DATA, box = document.getElementById(ID), W = 900, H = 150, L = 64, B = 18,
  t = d.times, n = t.length;
const span = Math.max(1, t[n - 1] - t[0]); let a = t[0], b = t[n - 1];
const edge = x => { let i = 0, j = n; while (i < j) { const m = (i + j) >> 1; t[m] < x ? i = m + 1 : j = m; } return i; };
const near = x => d.dated ? new Date(x).toISOString().slice(0, 16).replace('T', ' ') : +x.toPrecision(5);
function draw() {
  const from = Math.max(0, edge(a) - 1), to = Math.min(n, edge(b) + 2), X = x => L + (x - a) / (b - a) * (W - L - 6);
  box.querySelectorAll('svg').forEach((svg, k) => {
    const c = d.columns[k], all = [c.low, c.high, c.given, ...c.draws];
    const seen = all.flatMap(v => v.slice(from, to)).filter(v => v !== null);
    let low = Math.min(...seen), high = Math.max(...seen); if (!(high > low)) { low -= 1; high += 1; }
    const Y = v => 6 + (high - v) / (high - low) * (H - B - 12), at = i => X(t[i]).toFixed(1);
    const line = v => { let s = '', on = 0; for (let i = from; i < to; i++) { if (v[i] === null) { on = 0; continue; }
      s += (on ? 'L' : 'M') + at(i) + ' ' + Y(v[i]).toFixed(1); on = 1; } return s; };
    let gaps = '', band = '', back = '', dots = '';
    for (let i = from; i < to; i++) {
      if (c.given[i] === null) { const first = i; while (i + 1 < to && c.given[i + 1] === null) i++;
        const x = X(t[Math.max(from, first - 1)]), w = X(t[Math.min(to - 1, i + 1)]) - x;
        gaps += `M${x.toFixed(1)} 4h${w.toFixed(1)}v${H - B - 8}h${(-w).toFixed(1)}z`; } }
    for (let i = from; i < to; i++) { band += (band ? 'L' : 'M') + at(i) + ' ' + Y(c.high[i]).toFixed(1);
      back = 'L' + at(i) + ' ' + Y(c.low[i]).toFixed(1) + back;
      if (c.given[i] !== null) dots += 'M' + at(i) + ' ' + Y(c.given[i]).toFixed(1) + 'h0'; }
    const path = (s, fill, stroke, width) =>
      `<path d="${s}" fill="${fill}" stroke="${stroke}" stroke-width="${width}" stroke-linecap="round"/>`;
    const wide = Math.max(2, Math.min(5, 2500 / (to - from)));
    const ticks = [.02, .35, .67, .99].map((s, i) => `<text x="${L + s * (W - L - 6)}" y="${H - 3}" ` +
      `text-anchor="${['start', 'middle', 'middle', 'end'][i]}">${near(a + s * (b - a))}</text>`).join('');
    svg.innerHTML = `<clipPath id="${ID}c${k}"><rect x="${L}" y="0" width="${W - L - 6}" height="${H - B}"/></clipPath>` +
      `<g clip-path="url(#${ID}c${k})">` + path(gaps, '#ddd', 'none', 0) + path(band + back + 'z', '#f7dca6', 'none', 0) +
      c.draws.map(v => path(line(v), 'none', '#E69F00', .7)).join('') + path(line(c.mean), 'none', '#000', 1) +
      path(dots, 'none', '#0072B2', wide) + '</g>' +
      `<text x="${L - 5}" y="14" text-anchor="end">${+high.toPrecision(3)}</text>` +
      `<text x="${L - 5}" y="${H - B - 6}" text-anchor="end">${+low.toPrecision(3)}</text>` +
      `<text x="${L + 5}" y="15" font-weight="bold"></text>` + ticks;
    svg.querySelectorAll('text')[2].textContent = c.name;
  });
}
function zoom(factor, centre) {
  const wide = Math.min(span, Math.max(span / n * 5, (b - a) * factor)), share = (centre - a) / (b - a);
  a = Math.max(t[0], Math.min(t[n - 1] - wide, centre - share * wide)); b = a + wide; draw();
}
const buttons = box.querySelectorAll('button');
buttons[0].onclick = () => zoom(.5, (a + b) / 2); buttons[1].onclick = () => zoom(2, (a + b) / 2);
buttons[2].onclick = () => move(-.5);
buttons[3].onclick = () => move(.5); buttons[4].onclick = () => { a = t[0]; b = t[n - 1]; draw(); };
function move(share) {
  const wide = b - a; a = Math.max(t[0], Math.min(t[n - 1] - wide, a + share * wide)); b = a + wide; draw();
}
box.querySelectorAll('svg').forEach(svg => {
  const time = e => { const r = svg.getBoundingClientRect();
    return a + (b - a) * Math.max(0, Math.min(1, ((e.clientX - r.left) / r.width * W - L) / (W - L - 6))); };
  svg.addEventListener('wheel', e => { e.preventDefault(); zoom(e.deltaY < 0 ? .8 : 1.25, time(e)); }, {passive: false});
  svg.addEventListener('dblclick', () => { a = t[0]; b = t[n - 1]; draw(); });
  svg.addEventListener('pointerdown', e => { svg.setPointerCapture(e.pointerId); svg.dragged = e.clientX; });
  svg.addEventListener('pointerup', () => { svg.dragged = undefined; });
  svg.addEventListener('pointermove', e => { if (svg.dragged === undefined) return;
    move((svg.dragged - e.clientX) / svg.getBoundingClientRect().width); svg.dragged = e.clientX; });
});
draw();
})();
"""


def zoomable(data: Dataset, draws: np.ndarray, steps: int = STEPS) -> str:
    """Make the HTML of a stretch of one series, which the reader zooms into by wheel, dragging or buttons.

    Parameters
    ----------
    data : Dataset
        With a timeline.
    draws : ndarray, (draws, samples, columns)
    steps : int
        Of the stretch.

    Returns
    -------
    str
    """
    assert data.timeline is not None
    rows, times = stretch(data, steps)
    rows, times = rows[rows >= 0], times[rows >= 0]
    columns = [_column(data, draws[:, rows, column].astype(float), rows, column) for column in columns_of(data, rows)]
    dated = bool(data.timeline.clock.periods) or data.timeline.clock.step >= DAY / 1440
    found = {"times": (times / 1e3 if dated else times).tolist(), "dated": dated, "columns": columns}
    identity = f"series{next(_NUMBERS)}"
    held = json.dumps(found).replace("</", "<\\/")
    script = _SCRIPT.replace("IDENTITY", json.dumps(identity)).replace("DATA", held)
    buttons = "".join(
        f"<button type=button>{words}</button>" for words in ("Zoom in", "Zoom out", "Earlier", "Later", "All")
    )
    pictures = "".join(_frame(column["name"], len(rows)) for column in columns)
    return (
        f'{_STYLE}<div class="series" id="{identity}"><p class="key">{_KEY}</p><p>{buttons}</p>{pictures}</div>'
        f"<script>{script}</script>"
    )


def _frame(name: str, rows: int) -> str:
    says = html.escape(
        f"{name} along {rows} rows: observed values, mean, 90 % of draws, three draws; gaps on grey", quote=True
    )
    return f'<svg viewBox="0 0 900 150" role="img" aria-label="{says}"></svg>'


def _column(data: Dataset, x: np.ndarray, rows: np.ndarray, column: int) -> dict[str, Any]:
    """Round the numbers of a column for the script; null if nothing is given."""
    low, high = np.quantile(x, [0.05, 0.95], axis=0)
    given = data.table()[rows, column]
    parts = {"given": given, "mean": x.mean(0), "low": low, "high": high}
    name = str(data.columns[column].name) if data.columns else f"column {column}"
    return {"name": name, "draws": [_short(each) for each in x[:3]], **{key: _short(each) for key, each in parts.items()}}


def _short(values: np.ndarray) -> list[float | None]:
    return [None if np.isnan(value) else float(f"{value:.5g}") for value in values]
