"""Missing cells outside the support: another column has values at which a column was never observed.

For example a measure taken from some age on, or a question asked of some people only. Held-out cells cannot judge a
model there, as all of them lie inside the support. Such cells are filled from the rows at its edge, and reported.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unfade.data.columns import Column
from unfade.data.observations import Observations
from unfade.errors import notice
from unfade.rng import KeyedNormals

_ROWS, _COLUMNS = 20_000, 200  # that are searched
_LEAST = 5  # cells outside the support
_SHARE = 0.1  # of a column's missing cells that lie outside the support, or nothing is said
_BEYOND = 0.25  # sd of the other column by which half of them lie beyond the edge
_WINDOW = 30  # rows inside the edge that are looked at, or more
_INSIDE = 0.25  # share of cells that are observed just inside the edge: a share that fades out leaves no edge
_CHANCE = 1e-3  # of a false alarm in a whole table
_TRIED = 3  # other columns, those with most cells beyond their edges
_UNORDERED = ("category", "boolean")
_SIDES = {-1: "below ", 0: "", 1: "above "}
_STREAM = 60  # of random numbers


@dataclass(frozen=True)
class SupportGap:
    """Cells of `column` that are missing where `other` is below (sign -1) or above (+1) `edge`, and never observed there.

    If `other` is a category, `edge` is the one of its values (sign 0). cells: their number; donors: the values of
    `column` in the rows nearest to the edge, sorted; none for a category, whose cells keep their draws. Columns by
    their number.
    """

    column: int
    other: int
    sign: int
    edge: float
    cells: int
    donors: Tensor

    def holds(self, values: Tensor) -> Tensor:
        """Find rows whose value of the other column (..., columns) lies outside the support."""
        if not self.sign:
            return values[..., self.other] == self.edge
        return self.sign * values[..., self.other] > self.sign * self.edge


def find_gaps(obs: Observations, columns: Sequence[Column]) -> list[SupportGap]:
    """Find the support gaps of a table, for each column by the other column that shows most of them."""
    if len(obs.event_shape) != 1 or obs.event_shape[0] > _COLUMNS:
        return []
    kinds = [column.kind for column in columns] or ["continuous"] * obs.event_shape[0]
    some = obs[:: -(-len(obs) // _ROWS) or 1]
    outside = _cells_outside(some, [k for k, kind in enumerate(kinds) if kind not in (*_UNORDERED, "passthrough")])
    without = _values_without(some, [k for k, kind in enumerate(kinds) if kind in _UNORDERED])
    found = []
    for j in (~obs.observed).any(0).nonzero().flatten().tolist():
        if kinds[j] == "passthrough":
            continue
        most = [k for k in outside[j].argsort()[::-1].tolist() if outside[j, k] > 0][:_TRIED]
        found += max((_gaps(obs, j, k) for k in most), key=lambda gaps: sum(gap.cells for gap in gaps), default=[])
        found += [gap for k, code in without[j] for gap in _gap_of_value(obs, j, k, code)]
    return found


def _cells_outside(obs: Observations, others: list[int]) -> NDArray[np.float64]:
    """Count the cells of each column (row of the result) that are missing beyond the edges of each other column.

    One sort per other column serves all columns. Sides on which a column has too few such cells count as 0.
    """
    values, by_column = obs.values.cpu().numpy(), np.ascontiguousarray(obs.observed.cpu().numpy().T)
    outside = np.zeros((len(by_column), len(by_column)))
    for k in others:
        rows = np.flatnonzero(by_column[k])
        rows = rows[values[rows, k].argsort()]
        ordered, there = values[rows, k].astype(np.float64), by_column[:, rows]
        many = there.sum(1)
        for side in (ordered, -ordered[::-1]) if len(rows) else ():
            edge = side[there.argmax(1)]
            beyond = np.searchsorted(side, edge)
            far = edge - side[beyond // 2] >= _BEYOND * side.std()
            enough = (beyond > 0) & (beyond >= _SHARE * (len(rows) - many)) & (many >= 2)
            outside[:, k] += beyond * (far & enough)
            there = there[:, ::-1]
    return outside


def _values_without(obs: Observations, others: list[int]) -> list[list[tuple[int, float]]]:
    """Find, for each column, the values of categorical columns at which it was never observed."""
    values, observed = obs.values.cpu().numpy(), obs.observed.cpu().numpy()
    found: list[list[tuple[int, float]]] = [[] for _ in observed.T]
    for k in others:
        rows = np.flatnonzero(observed[:, k])
        rows = rows[values[rows, k].argsort()]
        codes, first = np.unique(values[rows, k], return_index=True)
        ever = np.logical_or.reduceat(observed[rows], first) if len(rows) else observed[:0]
        for place, j in np.argwhere(~ever):
            found[j].append((k, float(codes[place])))
    return found


def _gap_of_value(obs: Observations, j: int, k: int, code: float) -> list[SupportGap]:
    """Find whether column j was never observed where categorical column k has a value, though often elsewhere."""
    codes, seen = obs.values[:, k], obs.observed[:, k]
    inside, outside = seen & (codes != code), seen & (codes == code)
    there, cells = int(obs.observed[inside, j].sum()), int(outside.sum())
    if obs.observed[outside, j].any() or cells < _LEAST or there < _INSIDE * int(inside.sum()):
        return []
    if _all_holes(cells, int(inside.sum()), there) > _CHANCE / (2 * obs.event_shape[0] ** 2):
        return []
    return [SupportGap(j, k, 0, code, cells, torch.zeros(0, dtype=torch.float64))]


def _gaps(obs: Observations, j: int, k: int) -> list[SupportGap]:
    """Find the gaps of column j below and above the values of column k at which it was observed."""
    there, gone = obs.observed[:, k] & obs.observed[:, j], obs.observed[:, k] & ~obs.observed[:, j]
    known, holes = obs.values[there, k].double(), obs.values[gone, k].double()
    sd = float(obs.values[obs.observed[:, k], k].double().std())
    pairs = 2 * obs.event_shape[0] ** 2
    found = []
    for sign in (-1, 1):
        edge = float((sign * known).max()) * sign
        outside = sign * holes[sign * holes > sign * edge]
        if len(outside) < max(_LEAST, _SHARE * len(holes)) or float(outside.median()) - sign * edge < _BEYOND * sd:
            continue
        inside = torch.cat([sign * known, sign * holes[sign * holes <= sign * edge]])
        nearest = inside.topk(min(len(inside), max(_WINDOW, len(outside))), sorted=False).indices
        observed = int((nearest < len(known)).sum())  # of as many rows inside the edge
        if observed < _INSIDE * len(nearest) or _all_holes(len(outside), len(nearest), observed) > _CHANCE / pairs:
            continue
        near = (sign * known).topk(min(len(known), max(10, min(50, len(known) // 20)))).indices
        donors = obs.values[there, j].double()[near].sort().values
        found.append(SupportGap(j, k, sign, edge, len(outside), donors))
    return found


def _all_holes(outside: int, inside: int, observed: int) -> float:
    """Compute the chance that all rows outside the edge miss a value, if any row there and inside may (Fisher)."""
    rows = np.arange(outside)
    return float(np.prod((outside + inside - observed - rows) / (outside + inside - rows)))


def fill_gaps(gaps: Sequence[SupportGap], draws: Tensor, observed: Tensor, rows: Tensor, seed: int, first: int = 0) -> None:
    """Put donors' values into draws (draws, samples, columns), in missing cells outside the support.

    observed: (samples, columns); rows: a key each, by which donors are chosen; first: number of the first draw.
    """
    if not gaps:
        return
    share = torch.special.ndtr(KeyedNormals(seed, rows, first, _STREAM)(len(draws), len(rows), len(gaps)))
    for number, gap in enumerate(gaps):
        if not len(gap.donors):
            continue
        chosen = (share[..., number] * len(gap.donors)).long().clamp(max=len(gap.donors) - 1)
        _put(gap, draws, observed, gap.donors[chosen])


def fill_gaps_with_means(gaps: Sequence[SupportGap], means: Tensor, observed: Tensor) -> None:
    """Put the means of donors into means (samples, columns), in missing cells outside the support."""
    for gap in gaps:
        if len(gap.donors):
            _put(gap, means, observed, gap.donors.mean())


def _put(gap: SupportGap, values: Tensor, observed: Tensor, donors: Tensor) -> None:
    """Put donors' values into the missing cells of a gap."""
    here = gap.holds(values) & ~observed[:, gap.column]
    values[..., gap.column] = torch.where(here, donors.to(values.dtype), values[..., gap.column])


def describe_gaps(gaps: Sequence[SupportGap], columns: Sequence[Column]) -> list[str]:
    """Describe each gap in a sentence without its full stop."""

    def name(column: int) -> str:
        """Return the name of a column."""
        return repr(columns[column].name) if columns else f"column {column}"

    def value(gap: SupportGap) -> str:
        """Write the edge of a gap."""
        known = columns[gap.other].categories if columns else ()
        if columns and columns[gap.other].kind == "date":
            return str(np.datetime64(int(gap.edge), "us").astype("datetime64[D]"))
        if columns and columns[gap.other].kind == "boolean":
            return str(bool(gap.edge))
        return repr(known[int(gap.edge)]) if known else f"{gap.edge:.{'0f' if 1e4 <= abs(gap.edge) < 1e12 else '4g'}}"

    return [
        f"{name(gap.column)} was never observed where {name(gap.other)} is {_SIDES[gap.sign]}{value(gap)} "
        f"({gap.cells} missing cells)"
        for gap in gaps
    ]


def warn_gaps(gaps: Sequence[SupportGap], columns: Sequence[Column]) -> None:
    """Warn of missing cells about which the data say nothing."""
    if gaps:
        listed = describe_gaps(gaps, columns)
        notice(
            f"{'; '.join(listed[:5])}{' and others' if len(listed) > 5 else ''}: these cells are filled nevertheless, at "
            "an edge from the nearest rows, which the data can neither support nor refute. Leave out cells that do not "
            "apply."
        )
