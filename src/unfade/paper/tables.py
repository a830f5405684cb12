"""table1 and supp-mnar: ELBO of the truth, and scores without a variance floor, for every way to draw."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from unfade.paper.figures import SHOWN, examples
from unfade.paper.settings import MNAR, TABLE_1
from unfade.paper.study import Results, Say, Setting, Study, fill, key, over_repeats
from unfade.paper.ways import ALL_WAYS, READINGS, WAYS

Cell = tuple[str, Any]  # data, and the share that is missing; None: a window is seen
Elbos = dict[Cell, dict[str, tuple[float, float]]]  # by cell and way: mean and sd over masks

# The column of the paper that a way is compared with.
PAPERS_NAME = {
    name: name.split()[0].strip(",").replace("unfade", "TAE")
    for name in ("MVAE", "MIWAE", "TAE as printed", "unfade", *READINGS)
}
ELBOS = ("ELBO", "ELBO of q(z|y)", "ELBO's median", "ELBO's K")  # of plain draws
COLUMNS = (*ELBOS, "R - Q", "energy score", "CRPS", "coverage", "PSNR", "PSNR, all entries", "exploding")
CLOSE = 0.05  # difference from a printed ELBO, as a share of it, up to which it counts as reproduced
STYLES = {  # colour, marker and place beside the others of the same setting
    "MVAE": ("C0", "o", -0.3),
    "MVAE, noise ignored, sigmoid": ("C4", "o", -0.2),
    "MIWAE": ("C1", "D", -0.1),
    "MIWAE, noise ignored, sigmoid": ("C5", "D", 0.0),
    "MIWAE, conditioned": ("C2", "D", 0.1),
    "TAE as printed": ("C3", "s", 0.2),
    "unfade": ("k", "^", 0.3),
}


def table1(study: Study, results: Results, repeats: int, say: Say) -> str:
    """Run the 27 cells of supplement D.3 and our own methods, at two floors of the variance."""
    fill_table1(study, results, repeats, say)
    return report_table1(study, results, repeats)


def fill_table1(study: Study, results: Results, repeats: int, say: Say) -> None:
    """Compute what results do not hold yet."""
    for lim in study.lims:
        _fill(replace(study, ways=study.ways or tuple(ALL_WAYS)), results, _cells(study, repeats), lim, say)


def report_table1(study: Study, results: Results, repeats: int) -> str:
    """Write the tables of what results hold, and draw the picture."""
    study, settings = replace(study, ways=study.ways or tuple(ALL_WAYS)), _cells(study, repeats)
    cells: list[Cell] = list(dict.fromkeys((each.data, each.missing) for each in settings))
    papers: dict[Cell, dict[str, float]] = {cell: {n: value for n, (value, _) in TABLE_1[cell].items()} for cell in cells}
    text, floors = [f"# Table 1: {', '.join(study.data)}", "", "![ELBO of the truth](table1.png)", ""], {}
    for lim in study.lims:
        label = f"lim {lim:g}"
        floors[label] = _elbos(study, results, settings, label)
        text += [f"## Log-variances within ±{lim / 2:g} ({label})", "", beside_the_paper(floors[label], papers), ""]
        for data, missing in cells:
            printed = {name: f"{value} ± {sd}" for name, (value, sd) in TABLE_1[data, missing].items()}
            same = [s for s in settings if (s.data, s.missing) == (data, missing)]
            text += [f"### {data}, {missing:.0%} missing", "", *_rows(study, results, same, label, printed), ""]
    draw_elbos(results.folder / "table1.png", floors)
    return "\n".join(text)


def _cells(study: Study, repeats: int) -> list[Setting]:
    """List the settings that are asked for; repeats are masks, as in the paper."""
    cells = [cell for cell in TABLE_1 if cell[0] in study.data and cell[1] in study.missing]
    return [Setting(*cell, mask) for cell in cells for mask in study.masks or range(repeats)]


def mnar(study: Study, results: Results, repeats: int, say: Say) -> str:
    """Run supplement D.2: a visible window of 10 x 10 pixels."""
    study = replace(study, ways=study.ways or tuple(WAYS))
    settings = [Setting("mnist", None, mask) for mask in range(repeats)]
    printed = {name: str(value) for name, value in MNAR.items()}
    text = ["# Structured missing values: a window of 10 x 10 is seen", ""]
    for lim in study.lims:
        label = _fill(study, results, settings, lim, say)
        found = _elbos(study, results, settings, label)
        text += [f"## {label}", "", beside_the_paper(found, {("mnist", None): MNAR}), ""]
        text += [*_rows(study, results, settings, label, printed), ""]
    if set(SHOWN) <= set(study.ways):
        text.append(examples(study, results, settings[:1], "window.png", say))
    return "\n".join(text)


def _fill(study: Study, results: Results, settings: Sequence[Setting], lim: float, say: Say) -> str:
    """Compute missing results at one floor of the variance; return its name."""
    label = f"lim {lim:g}"
    at_floor = replace(study, architecture=replace(study.architecture, width=lim))
    fill(at_floor, results, settings, label, say, study.ways)
    return label


def _elbos(study: Study, results: Results, settings: Sequence[Setting], label: str) -> Elbos:
    """Collect the ELBO of every way without resampling: it is a bound for q(x|y) before resampling."""
    masks: dict[Cell, list[Setting]] = {}
    for setting in settings:
        masks.setdefault((setting.data, setting.missing), []).append(setting)
    found = {
        cell: {way: _there(results, same, way, label) for way in study.ways if not ALL_WAYS[way].refined}
        for cell, same in masks.items()
    }
    return {
        cell: {way: over_repeats([one["ELBO"] for one in each]) for way, each in ways.items() if each}
        for cell, ways in found.items()
    }


def _there(results: Results, settings: Sequence[Setting], way: str, label: str) -> list[dict[str, Any]]:
    """Collect the results that exist: training may have failed for good."""
    return [results[name] for setting in settings if (name := key(setting, way, label)) in results]


def beside_the_paper(found: Elbos, papers: Mapping[Cell, Mapping[str, float]]) -> str:
    """Compare our ELBOs with those printed in the paper: least and largest difference, and how many are within 5 %."""
    said = []
    for way, name in PAPERS_NAME.items():
        pairs = [(ours[way][0], papers[cell][name]) for cell, ours in found.items() if way in ours and name in papers[cell]]
        if pairs:
            whose = "" if way.startswith(name) else f" (less {name}'s)"
            gaps = [ours - printed for ours, printed in pairs]
            most = f" to {max(gaps):+.0f}" if len(gaps) > 1 else ""
            close = sum(abs(ours - printed) <= CLOSE * abs(printed) for ours, printed in pairs)
            said.append(f"{way}{whose} {min(gaps):+.0f}{most}, within {CLOSE:.0%} in {close} of {len(pairs)}")
    return f"ELBO less the paper's, in nats: {'; '.join(said)}." if said else ""


def _rows(study: Study, results: Results, settings: Sequence[Setting], label: str, papers: dict[str, str]) -> list[str]:
    """Format a line per way to draw: means over masks, their sd if there are several, the paper's ELBO."""
    learned = not study.noise_known or any(ALL_WAYS[way].infers for way in study.ways)
    columns = (*COLUMNS, "noise") if learned else COLUMNS
    lines = ["| | ELBO, paper | " + " | ".join(columns) + " |", "|---" * (len(columns) + 2) + "|"]
    for way in study.ways:
        if not (cells := _there(results, settings, way, label)):
            continue
        numbers = {name: _mean(name, [cell[name] for cell in cells if name in cell]) for name in columns}
        numbers["coverage"] += f" of {cells[0]['coverage due']:.3f}"
        if ALL_WAYS[way].refined:
            numbers |= dict.fromkeys(ELBOS, "as plain")
        lines.append(f"| {way} | {papers.get(PAPERS_NAME.get(way, ''), '')} | " + " | ".join(numbers.values()) + " |")
    return lines


def _mean(name: str, values: Sequence[float]) -> str:
    if not values:
        return ""
    digits = {**dict.fromkeys(ELBOS, 0), "CRPS": 4, "PSNR": 2, "PSNR, all entries": 2, "R - Q": 1}.get(name, 3)
    middle, sd = over_repeats(values)
    return f"{middle:.{digits}f}" + (f" ± {sd:.{digits}f}" if len(values) > 1 else "")


def draw_elbos(path: Path, floors: Mapping[str, Elbos]) -> None:
    """Draw a panel per floor: ELBOs by setting, the paper's hollow; those below zero as arrows at the lower edge."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(1.2 + 4.2 * len(floors), 4.4), layout="constrained")
    for axis, (label, found) in zip(figure.subplots(1, len(floors), squeeze=False)[0], floors.items(), strict=True):
        for i, (cell, ours) in enumerate(found.items()):
            for way, (colour, marker, place) in STYLES.items():
                printed = TABLE_1[cell].get(PAPERS_NAME.get(way, ""))
                if printed and way != "unfade":
                    axis.errorbar(i + place, *printed, fmt=marker, color=colour, mfc="w", ms=6)
                if way in ours:
                    (middle, sd), low = ours[way], ours[way][0] < 0
                    axis.errorbar(
                        i + place, max(middle, 0), 0 if low else sd, fmt="v" if low else marker, color=colour, ms=4
                    )
            if i % 2:
                axis.axvspan(i - 0.5, i + 0.5, color="0.95", zorder=-1)
        names = [f"{data} {missing:.0%}" for data, missing in found]
        axis.set_xticks(range(len(found)), names, rotation=40, ha="right", fontsize=8)
        axis.set(title=label, ylabel="ELBO of the truth", ylim=(-60, None), xlim=(-0.5, len(found) - 0.5))
        axis.spines[["top", "right"]].set_visible(False)
    shown = [way for way in STYLES if any(way in ours for found in floors.values() for ours in found.values())]
    marks = [Line2D([], [], ls="", color=STYLES[way][0], marker=STYLES[way][1], ms=4, label=way) for way in shown]
    hollow = Line2D([], [], ls="", color="0.3", marker="o", mfc="w", ms=6, label="hollow: the paper's")
    figure.legend(handles=[*marks, hollow], loc="outside lower center", ncols=6, frameon=False, fontsize=8)
    figure.savefig(path, dpi=130)
