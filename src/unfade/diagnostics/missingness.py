"""Missingness: columns whose cells are missing more often where another column is high, low or of one category."""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from unfade.data.columns import value_of
from unfade.diagnostics.coverage import LEAST
from unfade.inference.held_out import HeldOut


@dataclass(frozen=True)
class MissingLink:
    """Dependence of the missingness of `column` on the value of `other`.

    Parameters
    ----------
    column, other : str
    shift : float
        Difference of the mean of `other`, in its sds, between rows with `column` missing and observed.
    z : float
        Welch's statistic.
    value : object
        If `other` is a category, the one at which cells are missing more often; `shift` is in sds of its indicator.
    """

    column: str
    other: str
    shift: float
    z: float
    value: Any = None

    @property
    def where(self) -> str:
        """Where cells are missing more often, in words."""
        said = ("high" if self.shift > 0 else "low") if self.value is None else repr(self.value)
        return f"{self.other!r} is {said}"


def missing_links(cells: HeldOut) -> tuple[MissingLink, ...]:
    """Find columns whose missingness depends on another column, beyond chance at one in a hundred.

    It compares the means of the other column over rows with this one observed and missing (Welch's statistic).

    Parameters
    ----------
    cells : HeldOut

    Returns
    -------
    tuple of MissingLink
    """
    table, found = cells.seen.copy(), []
    table[cells.rows, cells.columns] = cells.values  # those were observed
    table = table[np.random.default_rng(0).permutation(len(table))[:20_000]]
    missing = np.isnan(table)
    candidates = [j for j in range(table.shape[1]) if LEAST <= missing[:, j].sum() <= len(table) - LEAST][:200]
    known = (~missing).sum(0) >= 2
    numbers = np.nonzero(known & ~cells.discrete())[0].tolist()
    others = [k for k in numbers if np.nanstd(table[:, k]) > 0][:200]
    indicators = _indicators(cells, table)
    values = {len(others) + i: value for i, (*_, value) in enumerate(indicators)}
    table = np.column_stack([table[:, others], *(there for _, there, _ in indicators)])
    others += [k for k, *_ in indicators]
    bar = NormalDist().inv_cdf(1 - 0.01 / 2 / max(1, len(candidates) * len(others)))
    for j in candidates:
        gone, there = table[missing[:, j]], table[~missing[:, j]]
        counts = [np.maximum((~np.isnan(part)).sum(0), 1) for part in (gone, there)]
        with np.errstate(invalid="ignore"):
            means = [np.nansum(part, 0) / n for part, n in zip((gone, there), counts, strict=True)]
            variances = [np.nansum((part - m) ** 2, 0) / np.maximum(n - 1, 1) / n
                         for part, m, n in zip((gone, there), means, counts, strict=True)]  # fmt: skip
            z = (means[0] - means[1]) / np.sqrt(np.maximum(sum(variances), 1e-300))
        for i, k in enumerate(others):
            if k != j and min(c[i] for c in counts) >= LEAST and (z[i] if i in values else abs(z[i])) > bar:
                shift = (means[0][i] - means[1][i]) / np.nanstd(table[:, i])
                far = float(np.clip(z[i], -99, 99))
                found.append(MissingLink(cells.name(j), cells.name(k), float(shift), far, values.get(i)))
    return tuple(sorted(found, key=lambda link: -abs(link.z)))


def _indicators(cells: HeldOut, table: np.ndarray) -> list[tuple[int, np.ndarray, Any]]:
    """Make indicators of columns of up to twenty categories or booleans: number of the column, indicator, value."""
    found = []
    for k in np.nonzero(cells.discrete())[0].tolist():
        column, known = cells.kinds[k], ~np.isnan(table[:, k])  # type: ignore[index]
        codes = np.unique(table[known, k])
        if 1 < len(codes) <= 20:
            found += [(k, np.where(known, table[:, k] == c, np.nan), value_of(c, column)) for c in codes]
    return found[:200]
