"""table1 and supp-mnar: the ELBO of the truth and scores that do not hang on a variance floor, for every way to draw."""

from collections.abc import Sequence
from dataclasses import replace

from unfade.paper.figures import SHOWN, examples
from unfade.paper.settings import MNAR, TABLE_1
from unfade.paper.study import WAYS, Results, Say, Setting, Study, fill, key, over_repeats

PAPERS_NAME = {"MVAE": "MVAE", "MIWAE": "MIWAE", "TAE as printed": "TAE", "unfade": "TAE"}
COLUMNS = ("ELBO", "energy score", "CRPS", "coverage", "PSNR")


def table1(study: Study, results: Results, repeats: int, say: Say) -> str:
    """27 cells of supplement D.3 with our own methods beside, at two floors of the variance."""
    cells = [cell for cell in TABLE_1 if cell[0] in study.data and cell[1] in study.missing]
    settings = [Setting(*cell, mask) for cell in cells for mask in range(repeats)]  # repeats are masks, as in the paper
    text = [f"# Table 1: {', '.join(study.data)}", ""]
    for lim in study.lims:
        label = _fill(study, results, settings, lim, say)
        text += [f"## Log-variances within ±{lim / 2:g} ({label})", ""]
        for data, missing in cells:
            papers = {name: f"{value} ± {spread}" for name, (value, spread) in TABLE_1[data, missing].items()}
            same = [s for s in settings if (s.data, s.missing) == (data, missing)]
            text += [f"### {data}, {missing:.0%} missing", "", *_rows(study, results, same, label, papers), ""]
    return "\n".join(text)


def mnar(study: Study, results: Results, repeats: int, say: Say) -> str:
    """A visible window of 10 x 10 pixels, supplement D.2."""
    settings = [Setting("mnist", None, mask) for mask in range(repeats)]
    papers = {name: str(value) for name, value in MNAR.items()}
    text = ["# Structured missing values: a window of 10 x 10 is seen", ""]
    for lim in study.lims:
        label = _fill(study, results, settings, lim, say)
        text += [f"## {label}", "", *_rows(study, results, settings, label, papers), ""]
    if set(SHOWN) <= set(study.ways):
        text.append(examples(study, results, settings[:1], "window.png", say))
    return "\n".join(text)


def _fill(study: Study, results: Results, settings: Sequence[Setting], lim: float, say: Say) -> str:
    """Run what is missing at one floor of the variance; answers its name."""
    label = f"lim {lim:g}"
    at_floor = replace(study, architecture=replace(study.architecture, width=lim))
    fill(at_floor, results, settings, label, say, study.ways)
    return label


def _rows(study: Study, results: Results, settings: Sequence[Setting], label: str, papers: dict[str, str]) -> list[str]:
    """One line a way to draw: means over masks, their spread where there are several, the paper's ELBO beside."""
    columns = COLUMNS if study.noise_known else (*COLUMNS, "noise")
    lines = ["| | ELBO, paper | " + " | ".join(columns) + " |", "|---" * (len(columns) + 2) + "|"]
    for way in study.ways:
        cells = [results[key(setting, way, label)] for setting in settings]
        numbers = [_mean(name, [cell[name] for cell in cells]) for name in columns]
        numbers[3] += f" of {cells[0]['coverage due']:.3f}"
        if WAYS[way].refined:
            numbers[0] = "as plain"  # the ELBO is that of q(x|y) before any resampling
        lines.append(f"| {way} | {papers.get(PAPERS_NAME.get(way, ''), '')} | " + " | ".join(numbers) + " |")
    return lines


def _mean(name: str, values: Sequence[float]) -> str:
    digits = {"ELBO": 0, "CRPS": 4, "PSNR": 2}.get(name, 3)
    middle, spread = over_repeats(values)
    return f"{middle:.{digits}f}" + (f" ± {spread:.{digits}f}" if len(values) > 1 else "")
