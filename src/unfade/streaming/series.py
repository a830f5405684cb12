"""Series larger than memory: parts of a table with the rows before and after each part, which only inform it.

The rows of a series must follow each other in order of time, one series after another.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from unfade.errors import InvalidData
from unfade.inference.fitted_model import FittedModel
from unfade.io.large_tables import Source
from unfade.pipeline import Block

CONTEXT = 1024  # rows before and after a part


def series_blocks(model: FittedModel, source: Source, size: int, start: int = 0) -> Iterator[Block]:
    """Read a table in parts of `size` rows from row `start` on, each with its context.

    Rows before `start` are read too: the first row of a series that goes on there is one of them.

    Parameters
    ----------
    model : FittedModel
        With a clock.
    source : Source
    size, start : int

    Returns
    -------
    iterator of Block
    """
    order, before, row = _Order(model, source), None, 0
    tables = source.tables(size)
    part = next(tables, None)
    while part is not None:
        after = next(tables, None)
        known = [each for each in (before, part, after and after.slice(0, CONTEXT)) if each is not None]
        inside = slice(len(before or ()), len(before or ()) + len(part))
        block = order.block(pa.concat_tables(known), row - inside.start, inside)
        if row >= start:
            yield block
        before, row, part = part.slice(max(0, len(part) - CONTEXT)), row + len(part), after


class _Order:
    """The series that parts have come to: rows out of order are refused, and each row gets the first row of its series."""

    def __init__(self, model: FittedModel, source: Source):
        self.model, self.source = model, source
        self.last: tuple[Any, ...] | None = None  # series of the row before
        self.origin = 0
        self.over: set[tuple[Any, ...]] = set()

    def block(self, table: pa.Table, start: int, inside: slice) -> Block:
        """Make a block of a part with its context; start: number of the first row of the context."""
        data = self.model.read(table)
        timeline = data.timeline
        assert timeline is not None
        cuts = np.flatnonzero(np.diff(timeline.series)) + 1
        backwards = (np.diff(timeline.times) <= 0) & (np.diff(timeline.series) == 0)
        names = [tuple(table[name][row].as_py() for name in timeline.clock.panel) for row in (0, *cuts.tolist())]
        if backwards.any() or len(set(names)) < len(names) or not self.over.isdisjoint(names):
            panel = ", ".join((*timeline.clock.panel, timeline.clock.time))
            raise InvalidData(
                f"{self.source.path} is read in parts, so the rows of a series must follow each other in order of time. "
                f"Sort it by {panel}, or use fit, transform and sample on the whole table (-o FILE)."
            )
        edges = [0, *cuts.tolist(), len(table)]
        first = [self.origin if names[0] == self.last else start, *(start + cuts)]
        origins = np.repeat(first, np.diff(edges))
        at = int(np.searchsorted(edges, max(inside.start, inside.stop - CONTEXT), side="right")) - 1  # of the next context
        self.over |= set(names[:at])
        self.last, self.origin = names[at], int(first[at])
        return Block(start, replace(data, timeline=replace(timeline, origins=origins)), inside=inside)
