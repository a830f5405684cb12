"""The experiments by name, and their runs into a folder."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from unfade.errors import InvalidData
from unfade.paper import classification, crossval, figures, tables
from unfade.paper import depth_maps as depth
from unfade.paper.datasets import LOADERS
from unfade.paper.settings import SCHEDULES
from unfade.paper.study import Results, Say, Study
from unfade.paper.ways import ALL_WAYS
from unfade.storage import whole_or_nothing

Experiment = Callable[[Study, Results, int, Say], str]


@dataclass(frozen=True)
class Named:
    """An experiment, its content in the paper, and how often the paper repeated it (None: it is not repeated)."""

    run: Experiment
    what: str
    repeats: int | None = None


EXPERIMENTS = {
    "fig1-toy": Named(figures.fig1_toy, "two dimensions, compared with the exact posterior"),
    "fig1-digits": Named(figures.fig1_digits, "MNIST: mean and draws"),
    "fig4-examples": Named(figures.fig4_examples, "MNIST: mean and draws, two shares missing"),
    "fig4-curves": Named(figures.fig4_curves, "PSNR and ELBO against the share of observed pixels", 5),
    "table1": Named(tables.table1, "ELBO of the truth: three data sets, three missing ratios", 5),
    "fig5-histograms": Named(classification.fig5_histograms, "classes of draws"),
    "fig6-classification": Named(classification.fig6_classification, "accuracy over the missing ratio", 15),
    "fig7-depth": Named(depth.fig7_depth, "missing pixels of raw depth maps, convolutional networks"),
    "supp-crossval": Named(crossval.crossval, "ELBO over C and lambda"),
    "supp-mnar": Named(tables.mnar, "a visible window of 10 x 10", 1),
}


def reproduce(
    name: str,
    folder: Path,
    schedule: str = "equal",
    repeats: int | None = None,
    data_dir: Path | None = None,
    device: str = "auto",
    noise_known: bool = True,
    together: int = 30,
    say: Say = print,
    data: Sequence[str] = (),
    ways: Sequence[str] = (),
    lims: Sequence[float] = (),
    missing: Sequence[float] = (),
    masks: Sequence[int] = (),
) -> str:
    """Run an experiment into `folder`: settings.json, results.json, pictures, report.md. Returns the report.

    A folder with results of these settings is continued. together: models trained together. data, ways, lims, missing,
    masks: parts of the tables to run, as in `Study`, all if empty; others may be added later.
    """
    settings = describe(name, schedule, repeats, noise_known)
    where = torch.device("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else torch.device(device)
    if unknown := [mask for mask in masks if mask >= settings["repeats"]]:
        raise InvalidData(f"Masks are 0 to {settings['repeats'] - 1}, got {', '.join(map(str, unknown))}.")
    parts = _only(data=data, ways=ways, lims=lims, missing=missing) | {"masks": tuple(masks)}
    study = Study(SCHEDULES[schedule], data_dir, where, noise_known=noise_known, together=together, **parts)
    results = Results(folder, settings)
    text = EXPERIMENTS[name].run(study, results, settings["repeats"], say)
    machine = torch.cuda.get_device_name(where) if where.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    settings_line = (
        f"Schedule {schedule}, {settings['repeats']} repeats, noise {'known' if noise_known else 'learned'}, {machine}"
    )
    report = f"{text}\n\n{settings_line}; {results['seconds']:.0f} s in all.\n"
    with whole_or_nothing(folder / "report.md") as part:
        Path(part).write_text(report)
    return report


def _only(**said: Sequence[Any]) -> dict[str, Any]:
    """Check the parts of a table to run, and drop empty ones."""
    for name, known in (("data", LOADERS), ("ways", ALL_WAYS), ("missing", Study.missing)):
        if unknown := [each for each in said[name] if each not in known]:
            raise InvalidData(f"Expected some of {', '.join(map(str, known))}; got {', '.join(map(str, unknown))}.")
    return {name: tuple(given) for name, given in said.items() if given}


def describe(name: str, schedule: str, repeats: int | None, noise_known: bool) -> dict[str, Any]:
    """Describe the settings of a run, for the folder of its results."""
    if name not in EXPERIMENTS:
        raise InvalidData(f"Experiments are {', '.join(EXPERIMENTS)}; got {name!r}.")
    if schedule not in SCHEDULES:
        raise InvalidData(f"Schedules are {', '.join(SCHEDULES)}; got {schedule!r}.")
    usual = EXPERIMENTS[name].repeats
    if repeats is not None and usual is None:
        raise InvalidData(f"{name} is not repeated: expected no number of repeats, got {repeats}.")
    asked = repeats or (1 if schedule == "quick" else usual or 1)
    meaning = {way: asdict(how) for way, how in ALL_WAYS.items()}
    content = {
        "ways": meaning,
        "experiment": name,
        "what": EXPERIMENTS[name].what,
        "repeats": asked,
        "noise known": noise_known,
    }
    return json.loads(json.dumps({**content, "schedule": {"name": schedule, **asdict(SCHEDULES[schedule])}}))
