"""Numbers of the result tables in README and docs are those of stored results, read by one mechanism."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from unfade.paper.settings import MNAR, TABLE_1
from unfade.paper.study import over_repeats

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
NUMBER = r"(?<![\w.])[−-]?\d[\d,]*\.?\d*"


@dataclass(frozen=True)
class Table:
    """A table of a page: its header and its rows, cells as text."""

    page: str
    line: int
    header: list[str]
    rows: list[list[str]]

    @property
    def name(self) -> str:
        """The page and the first words of the header, by which tables are told apart."""
        return f"{self.page}: {' | '.join(self.header)}"[:90].strip()

    @property
    def is_of_results(self) -> bool:
        """Whether a quarter of its cells or more hold numbers with decimals, spreads or shares."""
        cells = [cell for row in self.rows for cell in row[1:] if cell]
        return sum(bool(re.search(r"\d ?[±%]|\d?\.\d\d|\d\.\d; |^\**−?\d+\**$", cell)) for cell in cells) > len(cells) / 4


def tables() -> list[Table]:
    """All tables of README and docs."""
    found = []
    for page in (ROOT / "README.md", *sorted(DOCS.glob("*.md"))):
        lines = page.read_text().splitlines()
        for number, line in enumerate(lines):
            if re.fullmatch(r"\|(-+\|)+", line):
                rows = []
                for row in lines[number + 1 :]:
                    if not row.startswith("|"):
                        break
                    rows.append(_cells(row))
                found.append(Table(page.name, number, _cells(lines[number - 1]), rows))
    return [table for table in found if table.is_of_results]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.replace(r"\|", "/").strip().strip("|").split("|")]


def stored(file: str) -> dict:
    return json.loads((DOCS / file).read_text())


def over_masks(file: str, pattern: str, score: str) -> list[float]:
    """Mean and standard deviation of a score over the stored results whose names match."""
    found = [result[score] for name, result in stored(file).items() if re.fullmatch(pattern, name)]
    assert found, (file, pattern)
    return list(over_repeats(found))


def agrees(text: str, value: float) -> bool:
    """Whether a printed number is a value rounded to its decimals; stored values have five digits."""
    plain = text.replace("−", "-").replace(",", "")
    half = 0.5 * 10.0 ** -len(plain.partition(".")[2])
    return abs(float(plain) - value) <= half + 1e-5 * max(1e-1, abs(value))


# By the first words of a table: the numbers that belong into a cell, from the labels of its row and column and the place
# of the column; None for a cell that nothing is stored of, or that the paper printed.
Source = Callable[[str, str, int], "list[float | None] | None"]
SCORES = ("ELBO", "energy score", "CRPS", "coverage", "PSNR")
MISSING = {"20%": 0.2, "50%": 0.5, "80%": 0.8}


def wide(score: str) -> Source:
    def source(row: str, column: str, place: int) -> list[float | None] | None:
        return [stored("results/wide.json")[row][column][score]]

    return source


def flows(row: str, column: str, place: int) -> list[float | None] | None:
    own = stored("results/flow.json")[f"{row.replace(' ', '/', 1)}/0/flow"]
    others = stored("results/wide.json")[row].values()
    names = ("energy score", "CRPS", "ELBO")
    if place < 7:
        score = names[(place - 1) // 2]
        values = [way[score] for way in others]
        return [own[score] if place % 2 else max(values) if score == "ELBO" else min(values)]
    return [own[("error over sd", "coverage within two grey levels", "training seconds")[place - 7]]]


def table_1(row: str, column: str, place: int) -> list[float | None] | None:
    """The paper's figures are in the package; those of unfade are stored repeat by repeat."""
    data, share = row.split(", ")
    if column.endswith(": paper"):
        return list(TABLE_1[data, MISSING[share]][column.removesuffix(": paper")])
    way = column.replace(",", ";")
    return over_masks("results/table1-unfade.json", rf"{data}, {share} missing, mask \d; {way}", "ELBO")


def scores_of_table_1(lim: int) -> Source:
    def source(row: str, column: str, place: int) -> list[float | None] | None:
        data, share = row.split(", ")
        way, score = ("unfade", "unfade, resampled")[place > 4], column.removeprefix("resampled: ")
        found = over_masks("results/table1-unfade.json", rf"{data}, {share} missing, mask \d; {way}; lim {lim}", score)
        return found[: 1 if score == "coverage" else 2]

    return source


def real_holes(row: str, column: str, place: int) -> list[float | None] | None:
    found = stored("results/real_holes.json")
    names = {name.split("/")[0] for name in found}
    methods = ("column draws", "IterativeImputer", "mice pmm", "mice cart", "unfade")
    if not row.startswith("mean rank"):
        return [found[f"{row}/score/0/{column}"]["score"]]
    scores = [[found.get(f"{name}/score/0/{method}", {}).get("score", np.nan) for method in methods] for name in names]
    whole = np.array([each for each in scores if np.isfinite(each).all()])
    assert row == f"mean rank ({len(whole)} tables)"
    return [float((whole.argsort(1).argsort(1) + 1).mean(0)[methods.index(column)])]


def held_constraints(row: str, column: str, place: int) -> list[float | None] | None:
    name, score = row.split()[0], ("consistent", "CRPS")[place - 1]
    mean = np.mean([stored("results/constraints.json")[f"selfreport/a fifth hidden/{s}/{name}"][score] for s in (0, 1)])
    return [float(mean) * (100 if place == 1 else 1)]


def to_the_letter(row: str, column: str, place: int) -> list[float | None] | None:
    way, score = ("MVAE", "TAE as printed")[place > 5], SCORES[(place - 1) % 5]
    data, share = row.split(", ")
    found = over_masks("results/table1-paper.json", rf"{data}, {share} missing, mask \d; {way}; lim 20", score)
    printed = [TABLE_1[data, MISSING[share]]["TAE"][0]] if column.endswith("(paper)") else []
    return [*found[: 1 if score == "coverage" else 2], *printed]


def learned_noise(row: str, column: str, place: int) -> list[float | None] | None:
    name = f"uci-har, 50% missing, mask 0; {row}; lim 20"
    return [stored("results/table1-noise.json")[name][column]]


def figure_4(row: str, column: str, place: int) -> list[float | None] | None:
    way, score = ("MVAE", "TAE as printed", "unfade")[(place - 1) // 3], ("PSNR", "ELBO", "energy score")[(place - 1) % 3]
    missing = 100 - int(row.removesuffix("%"))
    return over_masks("results/fig4-curves.json", rf"mnist, {missing}% missing, mask \d; {way}; curves", score)


def figure_6(row: str, column: str, place: int) -> list[float | None] | None:
    data, share = row.split(", ")
    pattern = rf"{data}, {share} missing, mask \d+, {column}"
    accuracy, error, brier = (
        over_masks("results/fig6-classification.json", pattern, score)
        for score in ("accuracy", "calibration error", "Brier score")
    )
    return [*accuracy, error[0], brier[0]]


def window(row: str, column: str, place: int) -> list[float | None] | None:
    if place == 1:
        return [MNAR[row.split()[0]]]
    lim, score = (10, 20)[place > 6], SCORES[(place - 2) % 5]
    return [stored("results/supp-mnar.json")[f"mnist, window, mask 0; {row}; lim {lim}"][score]]


def grid_of_digits(row: str, column: str, place: int) -> list[float | None] | None:
    found = stored("results/c-lambda.json")[f"digits/{row}, {column}/0/TAE, author's habits"]
    return [found["ELBO"], found["R - Q"]]


def ways_on_digits(row: str, column: str, place: int) -> list[float | None] | None:
    return [stored("results/c-lambda.json")[f"digits/C 10, lambda 2/0/{row}"][column]]


def bound_on_tables(row: str, column: str, place: int) -> list[float | None] | None:
    table, score = row.split(", ")
    found = stored("results/bound.json")
    return [float(np.mean([found[f"{table}/MCAR/{seed}/{column}"][f"missing: {score}"] for seed in (0, 1)]))]


def alarm(row: str, column: str, place: int) -> list[float | None] | None:
    names = {
        "the default recipe on those tables": "default, linear table",
        "the default recipe on points near a circle, three columns, 30 % missing": "default, circle",
        "the TAE as printed, on digits with four fifths of the pixels hidden": "printed TAE",
    }
    judged = stored("images/alarm.json")[names.get(row, row.removeprefix("exact posterior, "))]
    return [100 * judged["fires"], len(judged["spread"])]


def second_mask(row: str, column: str, place: int) -> list[float | None] | None:
    one = stored("results/tables.json")[f"{row.replace(', ', '/')}/1/{column}"]
    return [one["missing: CRPS"], one["missing: coverage"], one["cpu_seconds"]]


def slopes(row: str, column: str, place: int) -> list[float | None] | None:
    method, setting = column.split(", ")
    found = stored("results/slopes.json")
    if not row.startswith("mean"):
        return [found[f"{row}/{setting}/0/{method}"]["inside"]]
    score = "inside" if row == "mean share" else "width"
    return [float(np.mean([one[score] for name, one in found.items() if name.endswith(f"/{setting}/0/{method}")]))]


def pooling(row: str, column: str, place: int) -> list[float | None] | None:
    ways = {
        "unfade, pooled": "unfade",
        "R's mice (pmm), pooled": "mice pmm",
        "tables without missing values": "nothing missing",
        "complete rows alone": "complete rows",
    }
    runs = [run for name, run in stored("results/pooling.json").items() if name.endswith(f"/{ways[row]}")]
    low, high, estimate = (np.array([run[part] for run in runs]) for part in ("low", "high", "estimate"))
    truth = np.array([1.0, 0.5, -0.5, 0.25, 0.0, 1.0])
    share = ((low <= truth) & (high >= truth)).mean(1)
    cells = {
        "repeats": [len(runs)],
        "coverage ± its standard error": [100 * share.mean(), 100 * share.std(ddof=1) / len(runs) ** 0.5],
        "mean width": [(high - low).mean()],
    }
    return [float(v) for v in cells.get(column, [np.abs((estimate - truth).mean(0)).max()])]


def ten_tables(row: str, column: str, place: int) -> list[float | None] | None:
    (table, setting), found = row.split(", "), stored("results/tables.json")
    if table != "mean":
        one = found[f"{table}/{setting}/0/{column}"]
        return [one["missing: CRPS"], one["missing: coverage"], one["cpu_seconds"]]
    tables = sorted({name.split("/")[0] for name in found if name.endswith("/0/unfade")})
    methods = ("unfade", "mice cart", "mice pmm", "IterativeImputer")
    every = [[found[f"{table}/{setting}/0/{method}"] for method in methods] for table in tables]
    own = methods.index(column)
    ranks = [1 + sum(other["missing: CRPS"] < each[own]["missing: CRPS"] for other in each) for each in every]
    return [
        *(np.mean([each[own][score] for each in every]) for score in ("missing: CRPS", "missing: coverage")),
        np.mean(ranks),
    ]


def noise_by_column(row: str, column: str, place: int) -> list[float | None] | None:
    explained, level = row.split(", ")
    names = ("told", "learned / true", "RMSE / left alone", "missing: coverage")
    return [stored("results/learned_noise.json")[f"{explained}/{level}/0/unfade"][names[place - 1]]]


def series(row: str, column: str, place: int) -> list[float | None] | None:
    names = {
        "unfade: MAE": ("unfade", "MAE"),
        "fitted to both": ("unfade, fitted to both", "MAE"),
        "linear, run here": ("linear interpolation", "MAE"),
        "seasonal, run here": ("seasonal interpolation", "MAE"),
        "coverage, fitted to both": ("unfade, fitted to both", "coverage"),
        "CPU seconds": ("unfade", "cpu_seconds"),
    }
    if column in ("best network", "linear, published"):
        return None
    method, score = names.get(column, ("unfade", column))
    data, setting = row.split(", ")
    results = stored("results/time-series.json")
    found = [result[score] for name, result in results.items() if re.fullmatch(f"{data}/{setting}/\\d/{method}", name)]
    spread = [float(np.ptp(found)) / 2] if score == "MAE" and len(found) > 1 else []
    return [float(np.mean(found)), *spread]


def network(row: str, column: str, place: int) -> list[float | None] | None:
    names = {
        "largest error of a noise level": "noise error",
        "fit, CPU s": "fit",
        "fit, wall s": "wall",
        "memory, MB": "memory",
    }
    names |= {"mean and 50 draws, CPU s": "mean and draws"}
    return [stored("results/series-network.json")[f"sensors/{row.replace(',', '')}/0/unfade"][names.get(column, column)]]


def long_series(row: str, column: str, place: int) -> list[float | None] | None:
    run = stored("results/series-stream.json")[f"sensors/{row.replace(',', '')}/0/unfade"]
    return [run[("fit", "recover", "before", "most")[place - 1]]]


def readme(row: str, column: str, place: int) -> list[float | None] | None:
    kinds = {"Nine real": "MCAR", ", MAR": "MAR", "noise of 0.3": "noise"}
    for words, setting in kinds.items():
        if words in row:
            found = [means_of_tables(setting, way) for way in ("unfade", "mice cart", "mice pmm", "IterativeImputer")]
            return list(found[0]) if place == 1 else [crps for crps, _ in found[1:]]
    if "Series" in row:
        return list(series_of_readme())
    if "UCI HAR" in row:
        (lowest, clearly), (lowest_crps, clearly_crps) = (leads_on_wide_data(score) for score in ("energy score", "CRPS"))
        return [lowest, lowest_crps, 2, clearly, clearly_crps, 1.75]
    assert "Kinect" in row
    method = ("unfade-conv-large", "nearest-pixel")[place - 1]
    runs = [stored("results/depth-kinect.json")[f"kinect-{method}-{seed}"]["scores"]["unseen"]["all"] for seed in (0, 1)]
    return [float(np.mean([run[name] for run in runs])) for name in ("crps", "coverage")[: 3 - place]]


def means_of_tables(setting: str, method: str) -> tuple[float, float]:
    """Mean CRPS and coverage of missing cells over the tables that unfade was run on."""
    found = stored("results/tables.json")
    tables = sorted({name.split("/")[0] for name in found if name.endswith("/unfade")})
    each = [found[f"{table}/{setting}/0/{method}"] for table in tables]
    return tuple(float(np.mean([one[f"missing: {score}"] for one in each])) for score in ("CRPS", "coverage"))


def series_of_readme() -> tuple[int, int, int]:
    """In how many settings unfade is below linear interpolation and the best network, of how many; coverage within .03."""
    [table] = [table for table in tables() if table.name.startswith("time.md:  | unfade: MAE")]
    at = {column: place for place, column in enumerate(table.header)}
    rows = [{column: cells[place].strip("*").split()[:1] for column, place in at.items()} for cells in table.rows]
    others = ("linear, run here", "best network")
    below = sum(all(float(row["unfade: MAE"][0]) < float(row[other][0]) for other in others) for row in rows)
    nominal = next(result["nominal"] for result in stored("results/time-series.json").values() if "nominal" in result)
    near = sum(abs(series(cells[0], "coverage", 0)[0] - nominal) <= 0.03 for cells in table.rows)
    return below, len(rows), near


def leads_on_wide_data(score: str) -> tuple[int, int]:
    """In how many settings a way of unfade has the lowest score, and in how many by 2 % or more."""
    ratios = []
    for found in stored("results/wide.json").values():
        own, others = ([r[score] for way, r in found.items() if way.startswith("unfade") == ours] for ours in (True, False))
        ratios.append(min(own) / min(others))
    return sum(ratio < 1 for ratio in ratios), sum(ratio <= 0.98 for ratio in ratios)


SOURCES: dict[str, Source] = {
    "README.md: Data | unfade | compared with": readme,
    "scoreboard.md: second mask": second_mask,
    "scoreboard.md: table, setting": ten_tables,
    "tables.md: analysis | repeats": pooling,
    "tables.md: table | unfade, MCAR": slopes,
    "research.md: R2 of clean columns": noise_by_column,
    "tables.md: table | column draws": real_holes,
    "tables.md: draws | consistent rows": held_constraints,
    "time.md:  | unfade: MAE": series,
    "time.md: steps | largest error": network,
    "time.md: steps | fit, CPU s": long_series,
    "wide.md: flow": flows,
    "wide.md: energy score, plain draws": wide("energy score"),
    "wide.md: energy score, resampled draws": wide("energy score"),
    "wide.md: CRPS, plain draws": wide("CRPS"),
    "wide.md: CRPS, resampled draws": wide("CRPS"),
    "wide.md: PSNR, plain draws": wide("PSNR"),
    "wide.md: ELBO of the truth": wide("ELBO"),
    "wide.md: coverage": wide("coverage"),
    "reproduction.md: ELBO of the truth | MVAE: paper": table_1,
    "reproduction.md: unfade, lim 10": scores_of_table_1(10),
    "reproduction.md: unfade, lim 20": scores_of_table_1(20),
    "reproduction.md:  | MVAE: ELBO": to_the_letter,
    "reproduction.md: uci-har, 50% | noise": learned_noise,
    "reproduction.md: observed | MVAE: PSNR": figure_4,
    "reproduction.md: missing | raw": figure_6,
    "reproduction.md:  | ELBO: paper | lim 10: ELBO": window,
    "reproduction.md: ELBO; R - Q": grid_of_digits,
    "reproduction.md: C 10, lambda 2": ways_on_digits,
    "method.md: missing cells": bound_on_tables,
    "trust.md: draws | alarm fires in": alarm,
}
# Tables of runs of which nothing but the tables was kept, and what their pages say makes them again.
NOT_STORED = {
    "images.md:  | seeds | steps | seconds | RMSE": "python benchmarks/depth.py --data-dir FOLDER",
    "images.md:  | 1 pixel | 2 to 4": "unfade reproduce fig7-depth --data-dir FOLDER --device cuda",
    "method.md:  | unfade | MIWAE | MVAE | TAE as printed": "python benchmarks/toys.py --seeds 3",
    "research.md: ": "python benchmarks/",
    "scoreboard.md: ": "python benchmarks/",
    "speed.md: ": "python benchmarks/",
    "trust.md: data | unfade | compared with": "benchmarks/",
}


def test_every_table_of_results_has_a_source_or_is_known_to_have_none():
    names = [table.name for table in tables()]
    unknown = [name for name in names if not name.startswith((*SOURCES, *NOT_STORED))]
    gone = [start for start in (*SOURCES, *NOT_STORED) if not any(name.startswith(start) for name in names)]
    assert not unknown, "store their results under docs/results and add them to SOURCES"
    assert not gone


def test_pages_name_the_commands_of_what_is_not_stored():
    for start, command in NOT_STORED.items():
        assert command in words(start.partition(":")[0]), start


@pytest.mark.parametrize("start", SOURCES)
def test_tables_are_those_of_the_stored_results(start):
    checked, wrong = 0, []
    for table in tables():
        if not table.name.startswith(start):
            continue
        for row in table.rows:
            for place, (column, cell) in enumerate(zip(table.header[1:], row[1:], strict=True), 1):
                printed = re.findall(NUMBER, cell)
                expected = SOURCES[start](row[0], column, place) if printed else None
                if expected is None:
                    continue
                pairs = list(zip(printed, expected, strict=True))
                wrong += [
                    (row[0], column, text, value) for text, value in pairs if value is not None and not agrees(text, value)
                ]
                checked += len(pairs)
    assert not wrong
    assert checked


def test_the_kinect_frames_that_were_run_again():
    runs = [run["scores"] for name, run in stored("results/depth-kinect.json").items() if name.startswith("kinect-unfade")]
    text = " ".join((DOCS / "images.md").read_text().split())
    for score, places in (("crps", 1), ("coverage", 3)):
        for rows in ("trained on", "unseen"):
            mean = np.mean([run[rows]["all"][score] for run in runs])
            assert f"{mean:.{places}f}" in text, (rows, score, mean)


def test_the_time_to_quality():
    points = stored("images/quality.json")["points"]
    printed = points["TAE as printed, batch 20, rate 2e-4; 500000 steps"]
    chosen = points["unfade, length chosen by held-out pixels; chosen steps"]
    text = " ".join((DOCS / "speed.md").read_text().split())
    assert f"{printed['seconds']:.0f} s to reach a CRPS of {printed['crps']:.3f}" in text
    assert f"the default reaches {chosen['crps']:.3f} in {chosen['seconds']:.1f} s" in text


def test_the_grid_of_the_supplement():
    scores = stored("results/supp-crossval.json")
    elbos = {name: result["ELBO"] for name, result in scores.items() if name.startswith("C ")}
    text = words("reproduction.md")
    assert f"below MVAE's {scores['MVAE']['ELBO']:.0f} everywhere, highest ({max(elbos.values()):.0f})" in text
    assert max(elbos.values()) < scores["MVAE"]["ELBO"]
    assert "below MVAE at all 36 pairs" in text
    assert len(elbos) == 36


def words(page: str) -> str:
    return " ".join((DOCS / page).read_text().split())


def test_the_leads_on_depth_maps_are_those_of_their_tables():
    """By how much unfade's CRPS and energy score are below the next, of frames trained on and of unseen ones."""
    leads: dict[str, list[float]] = {"CRPS": [], "energy score": []}
    for table in (table for table in tables() if table.name.startswith("images.md:  | seeds | steps")):
        for score, lead in leads.items():
            place = table.header.index(score)
            for rows in ("trained on", "unseen"):
                cells = {row[0]: float(row[place].split()[0]) for row in table.rows if row[0].endswith(rows)}
                own = cells[f"unfade, conv-large, {rows}"]
                lead.append(100 * (1 - own / min(value for name, value in cells.items() if not name.startswith("unfade"))))
    text = " ".join((DOCS / "images.md").read_text().split())
    said = [f"by {min(lead) - 0.05:.0f} to {max(lead) + 0.05:.0f} %" for lead in leads.values()]  # of rounded numbers
    assert f"CRPS lower than the next {said[0]}, energy score {said[1]}" in text
