"""Faults of sensors: runs of one value (a stuck sensor) and single values far from both neighbours (spikes), warned of."""

from collections.abc import Sequence

import numpy as np

from unfade.data.columns import Column
from unfade.data.observations import Observations
from unfade.data.timeline import Timeline
from unfade.errors import notice

LEAST_RUN, RARE = 6, 1e-4  # steps of a stuck sensor; expected number of such runs by chance, at most
FAR = 12.0  # from the middle of both neighbours, in robust sds, for a spike
_LEAST_CELLS = 50


def stuck(values: np.ndarray) -> tuple[int, int] | None:
    """Find the longest run of one value, if it is longer than repeats of the other values explain.

    Parameters
    ----------
    values : ndarray, (cells,)
        Of a sensor in order of time.

    Returns
    -------
    (start, length) or None
    """
    if len(values) < _LEAST_CELLS:
        return None
    starts = np.flatnonzero(np.r_[True, np.diff(values) != 0])
    lengths = np.diff(np.r_[starts, len(values)])
    longest = int(lengths.argmax())
    repeats = (len(values) - len(starts) - (lengths[longest] - 1) + 1) / len(values)  # of a value, by its next one
    by_chance = len(values) * min(1.0, repeats) ** (lengths[longest] - 1)
    alone = lengths[longest] >= max(LEAST_RUN, 3 * np.sort(lengths)[-2:][0]) and by_chance < RARE
    return (int(starts[longest]), int(lengths[longest])) if alone else None


def spikes(values: np.ndarray) -> np.ndarray:
    """Find values far from the middle of both neighbours while these are near each other.

    Parameters
    ----------
    values : ndarray, (cells,)
        Of a sensor in order of time.

    Returns
    -------
    ndarray
        Their places.
    """
    if len(values) < _LEAST_CELLS:
        return np.zeros(0, int)
    apart = values[1:-1] - (values[:-2] + values[2:]) / 2
    scale = 1.4826 * np.median(np.abs(apart - np.median(apart)))
    across = np.abs(values[2:] - values[:-2])
    return (
        1 + np.flatnonzero((np.abs(apart) > FAR * scale) & (across < np.abs(apart) / 2)) if scale > 0 else np.zeros(0, int)
    )


def warn_faults(obs: Observations, timeline: Timeline, columns: Sequence[Column]) -> None:
    """Warn of stuck sensors and spikes, which count as observed.

    Parameters
    ----------
    obs : Observations, (rows, columns)
    timeline : Timeline
    columns : sequence of Column
    """
    order = timeline.grid.rows[timeline.grid.rows >= 0]
    found = []
    for number, column in enumerate(columns):
        if column.kind not in ("continuous", "integer"):
            continue
        rows = order[obs.observed[order, number]]
        values = obs.values[rows, number].double().numpy()
        if (run := stuck(values)) is not None:
            row = int(rows[run[0]])
            found.append(f"{column.name!r} holds {values[run[0]]:g} at {run[1]} steps one after another, from row {row}")
        if len(far := spikes(values)):
            places = ", ".join(str(int(row)) for row in rows[far][:5])
            found.append(f"{column.name!r} has {len(far)} spike{'s' if len(far) > 1 else ''}, in row {places}")
    if found:
        notice(
            f"Likely faults of sensors: {'; '.join(found[:8])}. They count as observed: leave such cells empty if they "
            "are wrong."
        )
