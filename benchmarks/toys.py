"""Two dimensions, energy distance to the exact posterior: `python benchmarks/toys.py --seeds 3`."""

import numpy as np
from boards import parser_of, run_all, written
from report import markdown
from store import RESULTS, Cell, found

from unfade.demo import toy


def distances(cell: Cell) -> dict:
    """Run `unfade demo --toy` with a seed; its pictures stay beside the results."""
    folder = RESULTS / "toys"
    folder.mkdir(parents=True, exist_ok=True)
    return {"distances": toy(folder, cell.seed, 0).scores}


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    chosen = parser_of(__doc__, seeds=3).parse_args(arguments)
    cells = [Cell("toys", "two dimensions", "noise", seed, "all") for seed in range(chosen.seeds)]
    if not chosen.report:
        run_all(cells, 1, distances)
    run = [result["distances"] for cell in cells if "distances" in (result := found(cell))]
    rows = []
    for name in run[0] if run else ():
        values = [distance[name] for distance in run]
        rows.append([name, f"{np.mean(values):.4f} ± {np.std(values, ddof=min(1, len(values) - 1)):.4f}"])
    written("toys", markdown(["", "energy distance to the exact posterior"], rows))


if __name__ == "__main__":
    main()
