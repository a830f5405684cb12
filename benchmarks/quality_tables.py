"""Quality of tables against the time allowed: `python benchmarks/quality_tables.py --data-dir FOLDER -o PICTURE`.

CRPS on missing cells (30 %, at random; one mask) of the default with `max_seconds`, against the seconds of fit and
20 draws. The limit is of the clock, so what a limit buys depends on how busy the machine is.
"""

from pathlib import Path

from boards import parser_of, run_all
from datasets import corrupted, truth
from methods import complete
from scores import column_units, score
from store import Cell, found

TABLES = ("concrete", "wine_quality_red")
LIMITS = (1, 3, 10, 30)


def result(folder: Path, cell: Cell) -> dict[str, float]:
    """Complete a table within a limit, and score it."""
    X = truth(cell.table, folder)
    Y, _ = corrupted(X, "MCAR", cell.seed)
    made = complete("unfade", Y, cell.seed, max_seconds=int(cell.setting.split()[0]))
    observed = ~(Y != Y)
    return {**score(X, observed, made.pop("draws"), column_units(X, observed)), **made}


def plot(cells: list[Cell], path: Path) -> None:
    """Draw a curve per table, each point with its limit."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    for table, style in zip(TABLES, ("k-o", "C0--s"), strict=True):
        run = [(c.setting, r) for c in cells if c.table == table and "missing: CRPS" in (r := found(c))]
        points = [(r["seconds"], r["missing: CRPS"]) for _, r in run]
        if points:
            axes.plot(*zip(*points, strict=True), style, label=table)
        for (limit, _), point in zip(run, points, strict=True):
            axes.annotate(limit, point, textcoords="offset points", xytext=(4, 5), fontsize=8)
    axes.set(xscale="log", xlabel="seconds of fit and draws by the clock", ylabel="CRPS on missing cells (lower is better)")
    axes.set_xticks([3, 5, 10, 20, 30], ["3", "5", "10", "20", "30"])
    axes.set_xticks([], minor=True)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = parser_of(__doc__, seeds=1)
    parser.add_argument("-o", "--output", type=Path, default=Path("quality-tables.png"))
    chosen = parser.parse_args(arguments)
    cells = [Cell("quality-tables", table, f"{limit} s", 0, "unfade") for table in TABLES for limit in LIMITS]
    if not chosen.report:
        run_all(cells, 1, lambda cell: result(chosen.data_dir, cell))
    plot(cells, chosen.output)


if __name__ == "__main__":
    main()
