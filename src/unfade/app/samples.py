"""Sample data of the page, to try it without a file: a table, noisy sensors with gaps, images with holes."""

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Sample:
    """A file to try the page with. make: its content; choices: settings of the page that suit it."""

    title: str
    says: str
    name: str
    make: Callable[[], bytes]
    choices: dict[str, Any] = field(default_factory=dict)


def wines() -> bytes:
    """Make a table: chemical measurements of wines and their grower, three cells in ten missing."""
    import pandas as pd
    from sklearn.datasets import load_wine

    found = load_wine(as_frame=True)
    table = found.data.iloc[:, :9].assign(grower=pd.Series(found.target).map({0: "Conti", 1: "Berti", 2: "Salvi"}))
    return _with_gaps(table, 0.3)


def sensors() -> bytes:
    """Make a table of six noisy sensors that follow the same weather, with gaps."""
    import pandas as pd

    rng = np.random.default_rng(1)
    hours = np.arange(400)
    weather = 15 + 5 * np.sin(hours / 3.8) + np.cumsum(rng.normal(size=400)) / 3
    gain, offset = rng.uniform(0.8, 1.2, 6), rng.uniform(-2, 2, 6)
    noise = np.array([0.2, 0.3, 0.4, 0.5, 0.6, 0.8]) * rng.normal(size=(400, 6))
    return _with_gaps(pd.DataFrame((offset + gain * weather[:, None] + noise).round(2)).add_prefix("sensor "), 0.15, hours)


def digits() -> bytes:
    """Make images: handwritten digits of 8 x 8 pixels with holes."""
    from sklearn.datasets import load_digits

    images = load_digits().images[:250] / 16
    rng, file = np.random.default_rng(2), io.BytesIO()
    for image in images:
        top, left = rng.integers(0, 6, 2)
        image[top : top + 4, left : left + 3] = np.nan
    np.save(file, images)
    return file.getvalue()


def _with_gaps(table: Any, share: float, hours: Any = None) -> bytes:
    """Empty cells of a table completely at random, and write it as CSV, after its hours if there are any."""
    table = table.mask(np.random.default_rng(0).random(table.shape) < share)
    if hours is not None:
        table.insert(0, "hour", hours)
    return bytes(table.to_csv(index=False), "utf-8")


SAMPLES = (
    Sample("Wines", "a table, three cells in ten missing", "wines.csv", wines),
    Sample("Sensors", "noisy series with gaps", "sensors.csv", sensors, {"noise": "learn", "time": "hour"}),
    Sample("Digits", "images with holes", "digits.npy", digits, {"seconds": 40}),
)
