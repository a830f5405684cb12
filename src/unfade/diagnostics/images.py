"""Pictures of images: given, mean, draws and standard deviation, side by side."""

from pathlib import Path
from typing import Any

import numpy as np

from unfade.inference.fitted_model import FittedModel

MISSING = "#56B4E9"  # the colour of pixels that were not measured


def write_gallery(
    model: FittedModel, frames: np.ndarray, path: Path, draws: int = 20, seed: int = 0, row_ids: list[int] | None = None
) -> None:
    """Recover some images, and write a picture of them with mean, draws and standard deviation.

    Parameters
    ----------
    model : FittedModel
    frames : ndarray, (images, height, width[, channels])
        NaN: missing.
    path : Path
    draws, seed : int
    row_ids : list of int or None, (images,)
        Numbers on which draws depend; None: 0, 1, ...
    """
    from matplotlib.figure import Figure

    from unfade.storage import whole_or_nothing

    drawn = model.sample(frames, draws, seed=seed, row_ids=row_ids).values
    figure = Figure(figsize=(12, 0.4 + 2 * len(frames) * shape_of(frames)), layout="constrained")
    draw_gallery(figure, frames, drawn)
    with whole_or_nothing(path) as draft:
        figure.savefig(draft, format=path.suffix[1:].lower(), dpi=110)


def shape_of(frames: np.ndarray) -> float:
    """Return height over width of a panel, between 0.3 and 3."""
    return float(np.clip(frames.shape[1] / frames.shape[2], 0.3, 3))


def draw_gallery(figure: Any, given: np.ndarray, drawn: np.ndarray) -> None:
    """Draw a line of panels for each of `given`, (images, height, width[, channels]); drawn: (draws, *given.shape)."""
    colour = given.ndim == 4 and given.shape[-1] == 3
    if given.ndim == 4 and not colour:
        given, drawn = given[..., 0], drawn[..., 0]
    low, high = np.nanquantile(drawn, [0.01, 0.99])
    panels = figure.subplots(len(given), 6, squeeze=False)
    names = ("given", "mean", "draw 1", "draw 2", "draw 3", "standard deviation")
    for row, line in enumerate(panels):
        sd = drawn[:, row].std(0)
        shown = [given[row], drawn[:, row].mean(0), *drawn[:3, row]]
        for panel, image in zip(line, shown, strict=False):
            if colour:
                image = np.where(np.isnan(image), _blue(), (image - low) / max(1e-12, high - low)).clip(0, 1)
            values = panel.imshow(image, cmap="gray", vmin=low, vmax=high, interpolation="nearest", aspect="auto")
        sd = sd.mean(-1) if colour else sd
        shown_sd = line[-1].imshow(sd, cmap="magma", vmin=0, interpolation="nearest", aspect="auto")
        for panel in line:
            panel.set_facecolor(MISSING)
            panel.set_xticks([])
            panel.set_yticks([])
        if not colour:
            figure.colorbar(values, ax=line[4], fraction=0.05)
        figure.colorbar(shown_sd, ax=line[5], fraction=0.05)
    for panel, name in zip(panels[0], names, strict=True):
        panel.set_title(name, fontsize=9)


def _blue() -> np.ndarray:
    """Return the colour of missing pixels as RGB."""
    from matplotlib.colors import to_rgb

    return np.array(to_rgb(MISSING))
