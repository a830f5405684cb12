"""The pipeline: rows from any source through a fitted model into any sinks, some at a time. The only loop over rows.

The command line, the page, files larger than memory, engines and folders of images differ in their blocks and sinks alone.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from unfade.inference.draws import Draws
from unfade.inference.fitted_model import FittedModel


@dataclass(frozen=True)
class Block:
    """Some rows on their way.

    start: the number of the first; given: the rows, in any container; row_ids: on which their draws depend, their numbers
    if not given; raw: the rows as their source holds them, where a sink wants them.
    """

    start: int
    given: Any
    row_ids: Sequence[int] | None = None
    raw: Any = None

    @property
    def ids(self) -> Sequence[int]:
        """On which the draws of the rows depend."""
        return range(self.start, self.start + len(self.given)) if self.row_ids is None else self.row_ids


@dataclass(frozen=True)
class Recovered:
    """A block and what became of it: the clean rows as `fill` says, and draws; None of what was not wanted."""

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
    """Recover block after block, and hand each to every sink.

    Parameters
    ----------
    model : fitted model
    blocks : where rows come from
    sinks : called with each block's result; with several workers also at the same time, in any order
    draws : how many to make of each row; 0 for none
    seed : of the draws; the fit's if not given
    clean : whether to give the clean rows too, which takes most of the time
    workers : blocks that are worked on at the same time, by a thread each
    """

    def work(block: Block) -> None:
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


def collect(model: FittedModel, data: Any, draws: int = 0, seed: int | None = None, clean: bool = True) -> Recovered:
    """Recover data that are in memory as one block."""
    found: list[Recovered] = []
    recover(model, [Block(0, data)], [found.append], draws, seed, clean)
    return found[0]


def _together(work: Callable[[Block], None], blocks: Iterable[Block], workers: int) -> None:
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
