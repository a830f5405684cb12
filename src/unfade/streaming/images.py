"""Folders and stacks of images larger than memory, recovered some images at a time."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from unfade.errors import InvalidData
from unfade.inference.fitted_model import FittedModel
from unfade.io.images import Frames, whole_sinks
from unfade.pipeline import Block, Recovered, recover
from unfade.training.progress import tracked


def recover_frames(
    model: FittedModel,
    frames: Frames,
    output: Path,
    std_to: Path | None = None,
    draws_to: Path | None = None,
    draws: int = 8,
    seed: int = 0,
    at_once: int = 16,
    show: bool = False,
) -> int:
    """Write the posterior mean of every image to `output`, and their standard deviations and draws elsewhere.

    Folders and files take their names when all is written, not before.

    Parameters
    ----------
    model : FittedModel
    frames : Frames
    output : Path
    std_to, draws_to : Path or None
        Where standard deviations and draws are written, if wanted.
    draws : int
    seed : int
    at_once : int
        Images in memory together.
    show : bool
        Show a bar with the time left.

    Returns
    -------
    int
        Number of missing pixels.
    """
    given_paths = [path for path in (output, std_to, draws_to) if path is not None]
    if len(set(given_paths)) < len(given_paths):
        raise InvalidData(
            "Expected different paths for means, standard deviations and draws, got one twice. Give each its own."
        )
    rule, missing = frames.rule, 0

    def blocks() -> Iterator[Block]:
        """Read the images in blocks, and count their missing pixels."""
        nonlocal missing
        for start in tracked(range(0, len(frames), at_once), show):
            raw = frames.raw(range(start, min(start + at_once, len(frames))))
            missing += rule.count(raw)
            yield Block(start, rule.entered(raw), raw=raw)

    with whole_sinks({path: draws if path == draws_to else None for path in given_paths}, frames) as sinks:
        exact = model.parameters.exact or not (model.noise is None or model.parameters.corruption or np.any(model.noise))

        def write(found: Recovered) -> None:
            """Write the results of a block."""
            which, raw = range(found.block.start, found.block.start + len(found.block.raw)), found.block.raw
            sinks[output].write(rule.left(found.clean, raw, exact), which)
            if std_to is not None and found.draws is not None:
                sinks[std_to].write(rule.spread(found.draws.std(), raw), which)
            for number, draw in enumerate(found.draws or () if draws_to is not None else ()):
                assert draws_to is not None
                sinks[draws_to].write(rule.left(draw, raw, exact), which, number)

        recover(model, blocks(), [write], draws if std_to or draws_to else 0, seed)
    return missing
