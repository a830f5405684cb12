"""Who is first on wide data, row by row, as tables and as a picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from report import markdown

from unfade.paper.study import Setting
from unfade.paper.ways import FLOW, READINGS, STOPPED, WAYS, Way

BOUND = "TAE, exact bound"
FOR_IMAGES = {**WAYS, **STOPPED, BOUND: READINGS[BOUND], **FLOW}
OURS = ("unfade", "unfade, resampled", "flow")


@dataclass(frozen=True)
class Scored:
    """What a way to draw scored in a setting: means over its masks, and the scores of single rows of each mask."""

    means: dict[str, float]
    rows: dict[int, dict[str, list[float]]]

    @classmethod
    def of(cls, masks: dict[int, dict[str, Any]]) -> "Scored | None":
        """Average the stored results of each mask; None where nothing was run."""
        if not masks:
            return None
        first = next(iter(masks.values()))
        kinds = [name for name, value in first.items() if isinstance(value, float)]
        means = {name: float(np.mean([one[name] for one in masks.values()])) for name in kinds}
        return cls(means, {mask: one["by row"] for mask, one in masks.items()})

    def differs(self, other: "Scored", score: str) -> bool:
        """Tell whether it differs from another by more than two standard errors.

        Rows are paired: differences of a row are averaged over the masks that both were run on. Those of the ELBO, of all
        rows, are not.
        """
        if score == "ELBO":
            error = np.hypot(*(cell.means["ELBO's standard error"] for cell in (self, other)))
            return bool(abs(self.means[score] - other.means[score]) > 2 * error)
        both = [mask for mask in self.rows if mask in other.rows]
        apart = np.mean([np.subtract(self.rows[m][score], other.rows[m][score]) for m in both], 0)
        return bool(abs(apart.mean()) > 2 * apart.std(ddof=1) / len(apart) ** 0.5)


Cells = dict[Setting, dict[str, Scored]]


def report(cells: Cells) -> str:
    """Write tables of scores, who is first in each setting, and how often unfade is: plain, resampled and all draws."""
    plain = [
        "MVAE",
        "TAE as printed",
        "MIWAE",
        "MIWAE, stopped",
        BOUND,
        "unfade",
        "flow",
    ]  # conditioning moves observed entries only
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
    for score in ("coverage", "coverage within two grey levels", "error over sd", "training seconds", "drawing seconds"):
        ways = [way for way in FOR_IMAGES if way != "MIWAE, conditioned"]
        text += [_table(score, cells, ways, score), ""]
    return "\n".join(text)


def _count(firsts: dict[Setting, str]) -> str:
    asked = [found for found in firsts.values() if found]
    won = sum(found in OURS for found in asked)
    tied = sum(found.removesuffix(", a tie") in OURS for found in asked) - won
    return f"unfade is first in {won} of {len(asked)}, and in {tied} more by less than two standard errors."


DIGITS = {"energy score": ".3f", "CRPS": ".4f", "ELBO": ".0f", "drawing seconds": ".2f"} | dict.fromkeys(
    ("coverage", "coverage within two grey levels", "error over sd"), ".3f"
)


def _table(title: str, cells: Cells, ways: Sequence[str], score: str, firsts: dict[Setting, str] | None = None) -> str:
    rows = []
    for setting, found in cells.items():
        values = [
            f"{found[way].means[score]:{DIGITS.get(score, '.0f')}}" if way in found and score in found[way].means else ""
            for way in ways
        ]
        rows.append([words(setting), *values] + ([] if firsts is None else [firsts.get(setting, "")]))
    return markdown([title, *ways] + ([] if firsts is None else ["first"]), rows)


def words(setting: Setting) -> str:
    """Name a setting in tables."""
    rows = f"{setting.rows:,} rows" if setting.rows else "all rows"
    return f"{setting.data} {setting.missing:.0%}, {rows}, {'trained on' if setting.trained_on else 'unseen'}"


def trained(way: str) -> Way:
    """Return what is trained for a way to draw."""
    return FOR_IMAGES[way].trained


def first(cells: dict[str, Scored], score: str) -> str:
    """Name who is first; "a tie" where it does not differ from every other model; "" where there is no other.

    Of the ways to draw from one model the best one counts. The ELBO is that of q(x|y) before any resampling.
    """
    order = sorted(cells, key=lambda way: cells[way].means[score], reverse=score == "ELBO")
    others = [way for way in order[1:] if trained(way) != trained(order[0])]
    if not others:
        return ""
    return order[0] + ("" if all(cells[order[0]].differs(cells[way], score) for way in others) else ", a tie")


def picture(cells: Cells, path: Path) -> None:
    """Draw the scores of every way to draw relative to the best of those that are not unfade's, one panel a score."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 7), layout="constrained")
    styles = {
        "MVAE": ("0.75", "s"),
        "TAE as printed": ("C3", "P"),
        "MIWAE": ("C0", "o"),
        "MIWAE, conditioned, resampled": ("C0", "o"),
        "MIWAE, stopped": ("C2", "D"),
        "MIWAE, stopped, resampled": ("C2", "D"),
        BOUND: ("C4", "X"),
        "unfade": ("k", "^"),
        "unfade, resampled": ("k", "^"),
        "flow": ("C1", "*"),
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
    figure.axes[0].set_yticks(range(len(cells)), [words(setting) for setting in cells])
    figure.axes[0].invert_yaxis()
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(path, dpi=110)
