"""The pipeline: the only loop that takes rows from any source through a fitted model into any sinks.

The command line, the page, files larger than memory, engines and folders of images differ in their blocks and sinks
alone.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import torch

from unfade.data.dataset import Dataset
from unfade.data.options import warn_passthrough_with_missing, without_extremes
from unfade.errors import notice
from unfade.inference.draws import Draws
from unfade.inference.fitted_model import FittedModel
from unfade.methods.parameters import Parameters

COMPLETE = "No cell is missing and noise is none: the data are unchanged. Clean them by noise='learn' (--noise learn)."


@dataclass(frozen=True)
class Block:
    """Rows that are recovered together.

    Parameters
    ----------
    start : int
        Number of the first row.
    given : array, tensor or frame
        The rows.
    row_ids : sequence of int or None
        Numbers on which the draws of the rows depend; None: `start`, `start` + 1, ...
    raw : object
        The rows as their source stores them, for sinks that need them.
    inside : slice
        The rows that are wanted; the others only inform them, and `clean` and `draws` have them too.
    """

    start: int
    given: Any
    row_ids: Sequence[int] | None = None
    raw: Any = None
    inside: slice = field(default_factory=lambda: slice(None))

    @property
    def wanted(self) -> range:
        """Numbers of the rows that are wanted."""
        return range(self.start, self.start + len(self.given))[self.inside]

    @property
    def ids(self) -> Sequence[int]:
        """Numbers on which the draws of the rows depend."""
        return range(self.start, self.start + len(self.given)) if self.row_ids is None else self.row_ids


@dataclass(frozen=True)
class Recovered:
    """A block with its clean rows and draws; None for what was not asked for.

    Parameters
    ----------
    block : Block
    clean : array, tensor or frame, or None
        Missing cells filled by the fit's `fill`.
    draws : Draws or None
    """

    block: Block
    clean: Any
    draws: Draws | None


Sink = Callable[[Recovered], None]


def recover(
    model: FittedModel,
    blocks: Iterable[Block],
    sinks: Sequence[Sink],
    draws: int = 0,
    seed: int | None = None,
    clean: bool = True,
    workers: int = 1,
) -> None:
    """Recover block after block, and call every sink with each result.

    Parameters
    ----------
    model : FittedModel
    blocks : iterable of Block
    sinks : sequence of callables
        Called with a `Recovered` per block; with several workers also at the same time, in any order.
    draws : int
        Draws of each row; 0: none.
    seed : int or None
        Seed of the draws; None: the fit's.
    clean : bool
        Compute the clean rows too, which takes most of the time.
    workers : int
        Blocks that are recovered at the same time, by a thread each.
    """

    def work(block: Block) -> None:
        """Recover one block and call the sinks."""
        data = model.read(block.given)  # once, for both
        mean = model.transform(data, row_ids=block.ids) if clean else None
        drawn = model.sample(data, draws, seed=seed, row_ids=block.ids) if draws else None
        for sink in sinks:
            sink(Recovered(block, mean, drawn))

    if workers == 1:
        for block in blocks:
            work(block)
            del block  # its memory, before the next is read
        return
    _together(work, blocks, workers)


def read_to_recover(parameters: Parameters, X: Any) -> Dataset:
    """Read rows as a fit with these parameters reads them, but keep impossible values, which are passed through.

    Parameters
    ----------
    parameters : Parameters
    X : array, tensor or frame, (samples, *event)

    Returns
    -------
    Dataset
    """
    return parameters.read(X)


def nothing_to_recover(parameters: Parameters, data: Dataset) -> bool:
    """Check whether a fit would leave every row unchanged, so that none is needed; if so, give its warnings.

    Parameters
    ----------
    parameters : Parameters
    data : Dataset
        From `read_to_recover`.

    Returns
    -------
    bool
    """
    if not (parameters.exact and data.complete):
        return False
    without_extremes(data.obs, data.columns)
    warn_passthrough_with_missing(data.container, parameters.kinds)
    notice(COMPLETE)
    return True


def collect(model: FittedModel, data: Any, draws: int = 0, seed: int | None = None, clean: bool = True) -> Recovered:
    """Recover data that are in memory as one block.

    Parameters
    ----------
    model : FittedModel
    data : array, tensor or frame, (samples, *event)
    draws, seed, clean : as in `recover`

    Returns
    -------
    Recovered
    """
    found: list[Recovered] = []
    recover(model, [Block(0, data)], [found.append], draws, seed, clean)
    return found[0]


def _together(work: Callable[[Block], None], blocks: Iterable[Block], workers: int) -> None:
    """Recover blocks by several threads, at most `workers` blocks in memory."""
    threads, running = torch.get_num_threads(), deque[Future[None]]()
    with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        try:
            for block in blocks:
                running.append(pool.submit(work, block))
                del block
                if len(running) == workers:
                    running.popleft().result()
            while running:
                running.popleft().result()
        finally:
            for future in running:
                future.cancel()
            torch.set_num_threads(threads)
