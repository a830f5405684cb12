"""The scoreboard of wide data: MNIST, Fashion-MNIST and UCI HAR with noise and missing entries, method by method.

Noise of sd 0.1 is known to all; networks are those of a default fit that knows the data's bounds, of all methods alike;
what differs is how they are trained. Rows that were trained on and unseen ones are scored apart. Models are trained side by
side, and a stopped run goes on.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch

from unfade.models.architectures import architecture_for
from unfade.paper import settings
from unfade.paper.study import STOPPED, WAYS, Results, Setting, Study, fill
from unfade.paper.study import key as name_of
from unfade.training.loop import TrainingConfig

FOR_IMAGES = {**WAYS, **STOPPED}
SCHEDULES = settings.SCHEDULES | {
    "board": settings.Schedule(
        TrainingConfig(steps=20_000, batch_size=200, learning_rate=1e-3),
        TrainingConfig(steps=5_000, batch_size=200, learning_rate=1e-3),
    )
}
IMAGES = [  # 10,000 rows that are trained on and recovered; or all, and unseen ones are recovered
    Setting(data, missing, 0, 10_000 if trained_on and data != "uci-har" else None, trained_on)
    for data in ("mnist", "fashion-mnist", "uci-har")
    for trained_on in (True, False)
    for missing in (0.2, 0.5, 0.8)
]
MORE = 1.75  # steps of unfade for one of MIWAE, which takes as long as three on two cores
OURS = ("unfade", "unfade, resampled")


def images(
    folder: Path, schedule: str, device: str, seeds: int, ways: Sequence[str], only: str, where: Path, run: bool = True
) -> str:
    """Run what is not among the results yet, unless told not to, and say who is first where.

    seeds: masks of MNIST; the others have one. only: a pattern of the settings to run, all where empty. The printed TAE
    has half the rate, 5e-4 on "board": that of `unfade reproduce table1`.
    """
    architecture = architecture_for(60_000, 784, bounded=True)
    study = Study(SCHEDULES[schedule], folder, torch.device(device), architecture, together=15, by_row=True)
    training = study.schedule.training
    own = {
        "tae-paper": replace(training, learning_rate=training.learning_rate / 2),
        "tae": replace(training, steps=int(MORE * training.steps)),
    }
    said = {
        "ways": {name: asdict(way) for name, way in FOR_IMAGES.items()},
        "schedule": asdict(study.schedule),
        "training": {method: asdict(config) for method, config in own.items()},
        "architecture": asdict(architecture),
    }
    results = Results(where, json.loads(json.dumps(said)))
    label = f"lim {architecture.width:.0f}"
    masks = {setting: range(seeds if setting.data == "mnist" else 1) for setting in IMAGES if re.search(only, str(setting))}
    for method, stopped in dict.fromkeys(_trained(way) for way in ways) if run else ():
        by = replace(study, schedule=replace(study.schedule, training=own.get(method, training)))
        alike = [way for way in ways if _trained(way) == (method, stopped)]  # ways to draw from one model
        fill(by, results, [replace(s, mask=m) for s in masks for m in masks[s]], label, print, alike, FOR_IMAGES)
    cells = {
        setting: {way: cell for way in ways if (cell := Cell.of(results, setting, seeds, way, label))} for setting in masks
    }
    text = f"Schedule {schedule}, {label}, {study.schedule.draws} draws, {study.schedule.scored} rows.\n\n" + report(cells)
    (where / "report.md").write_text(text)
    if not run:
        picture(cells, where / "images.png")
        (where / "scores.json").write_text(_as_json(cells))
    return text


def _as_json(cells: "Cells") -> str:
    """The means, a line a setting."""
    lines = []
    for setting, found in cells.items():
        rounded = {way: {name: float(f"{v:.5g}") for name, v in cell.means.items()} for way, cell in found.items()}
        lines.append(f"{json.dumps(_words(setting))}: {json.dumps(rounded)}")
    return "{" + ",\n".join(lines) + "}\n"


def _trained(way: str) -> tuple[str, bool]:
    return FOR_IMAGES[way].method, FOR_IMAGES[way].stopped


@dataclass(frozen=True)
class Cell:
    """What a way to draw scored in a setting: means over its masks, and the scores of single rows of each mask."""

    means: dict[str, float]
    rows: dict[int, dict[str, list[float]]]

    @classmethod
    def of(cls, results: Results, setting: Setting, seeds: int, way: str, label: str) -> "Cell | None":
        """From what was run; None where nothing was."""
        names = {mask: name_of(replace(setting, mask=mask), way, label) for mask in range(seeds)}
        found = {mask: results[name] for mask, name in names.items() if name in results}
        if not found:
            return None
        kinds = [name for name in next(iter(found.values())) if name != "by row"]
        means = {name: float(np.mean([one[name] for one in found.values()])) for name in kinds}
        return cls(means, {mask: one["by row"] for mask, one in found.items()})

    def differs(self, other: "Cell", score: str) -> bool:
        """Whether it differs from another by more than two standard errors.

        Rows are paired: differences of a row are averaged over the masks that both were run on. Those of the ELBO, of all
        rows, are not.
        """
        if score == "ELBO":
            error = np.hypot(*(cell.means["ELBO's standard error"] for cell in (self, other)))
            return bool(abs(self.means[score] - other.means[score]) > 2 * error)
        both = [mask for mask in self.rows if mask in other.rows]
        apart = np.mean([np.subtract(self.rows[m][score], other.rows[m][score]) for m in both], 0)
        return bool(abs(apart.mean()) > 2 * apart.std(ddof=1) / len(apart) ** 0.5)


Cells = dict[Setting, dict[str, Cell]]


def report(cells: Cells) -> str:
    """Tables of scores, who is first in each setting, and how often unfade is: plain draws, resampled ones, and all."""
    plain = ["MVAE", "TAE as printed", "MIWAE", "MIWAE, stopped", "unfade"]  # conditioning moves observed entries only
    resampled = [way for way in FOR_IMAGES if FOR_IMAGES[way].refined]
    text = []
    for title, score, ways in (
        ("energy score, plain draws", "energy score", plain),
        ("energy score, resampled draws", "energy score", resampled),
        ("CRPS, plain draws", "CRPS", plain),
        ("CRPS, resampled draws", "CRPS", resampled),
        ("ELBO of the truth", "ELBO", [*plain[:3], "MIWAE, conditioned", *plain[3:]]),
    ):
        taken = {setting: {way: found[way] for way in ways if way in found} for setting, found in cells.items()}
        firsts = {setting: first(found, score) for setting, found in taken.items()}
        text += [_table(title, taken, ways, score, firsts), "", _count(firsts), ""]
    for score in ("energy score", "CRPS"):
        text += [f"{score}, all ways to draw: {_count({s: first(found, score) for s, found in cells.items()})}", ""]
    for score in ("coverage", "training seconds", "drawing seconds"):
        ways = [way for way in FOR_IMAGES if way != "MIWAE, conditioned"]
        text += [_table(score, cells, ways, score), ""]
    return "\n".join(text)


def _count(firsts: dict[Setting, str]) -> str:
    asked = [found for found in firsts.values() if found]
    won = sum(found in OURS for found in asked)
    tied = sum(found.removesuffix(", a tie") in OURS for found in asked) - won
    return f"unfade is first in {won} of {len(asked)}, and in {tied} more by less than two standard errors."


def _table(title: str, cells: Cells, ways: Sequence[str], score: str, firsts: dict[Setting, str] | None = None) -> str:
    last = [] if firsts is None else ["first"]
    lines = [f"| {title} | " + " | ".join([*ways, *last]) + " |", "|---" * (len(ways) + 1 + len(last)) + "|"]
    digits = {"energy score": ".3f", "CRPS": ".4f", "ELBO": ".0f", "coverage": ".3f", "drawing seconds": ".2f"}.get(
        score, ".0f"
    )
    for setting, found in cells.items():
        values = [f"{found[way].means[score]:{digits}}" if way in found else "" for way in ways]
        lines.append(f"| {_words(setting)} | " + " | ".join(values + [(firsts or {}).get(setting, "")] * len(last)) + " |")
    return "\n".join(lines)


def _words(setting: Setting) -> str:
    rows = f"{setting.rows:,} rows" if setting.rows else "all rows"
    return f"{setting.data} {setting.missing:.0%}, {rows}, {'trained on' if setting.trained_on else 'unseen'}"


def first(cells: dict[str, Cell], score: str) -> str:
    """Who is first; "a tie" where it does not differ from every other model; "" where there is no other.

    Of the ways to draw from one model the best one counts. The ELBO is that of q(x|y) before any resampling.
    """
    order = sorted(cells, key=lambda way: cells[way].means[score], reverse=score == "ELBO")
    others = [way for way in order[1:] if _trained(way) != _trained(order[0])]
    if not others:
        return ""
    return order[0] + ("" if all(cells[order[0]].differs(cells[way], score) for way in others) else ", a tie")


def picture(cells: Cells, path: Path) -> None:
    """Scores of every way to draw relative to the best of those that are not unfade's, one panel a score."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 7), layout="constrained")
    styles = {
        "MVAE": ("0.75", "s"),
        "TAE as printed": ("C3", "P"),
        "MIWAE": ("C0", "o"),
        "MIWAE, conditioned, resampled": ("C0", "o"),
        "MIWAE, stopped": ("C2", "D"),
        "MIWAE, stopped, resampled": ("C2", "D"),
        "unfade": ("k", "^"),
        "unfade, resampled": ("k", "^"),
    }
    for axis, score in zip(figure.subplots(1, 2, sharey=True), ("energy score", "CRPS"), strict=True):
        for way, (colour, marker) in styles.items():
            places, ratios = [], []
            for place, found in enumerate(cells.values()):
                others = [cell.means[score] for name, cell in found.items() if name not in OURS]
                if way in found and others:
                    places, ratios = [*places, place], [*ratios, found[way].means[score] / min(others)]
            hollow = "none" if FOR_IMAGES[way].refined else colour
            axis.scatter(
                ratios, places, c=hollow, edgecolors=colour, marker=marker, label=way, s=36, zorder=2 + (way in OURS)
            )
        axis.axvline(1, color="0.5", lw=0.8, zorder=1)
        axis.set(xlim=(0.9, 1.35), xlabel=f"{score} / best of the others")
        axis.grid(axis="y", alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_yticks(range(len(cells)), [_words(setting) for setting in cells])
    figure.axes[0].invert_yaxis()
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(path, dpi=110)
