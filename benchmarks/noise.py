"""The noise level that a default fit learns: `python benchmarks/noise.py --data-dir FOLDER`.

10,000 images of MNIST and Fashion-MNIST, half of the pixels missing, beside the true level. The first stage of a fit
finds it; what comes after does not change it, and is cut short.
"""

from pathlib import Path

import numpy as np
from boards import parser_of, run_all, written
from report import markdown
from store import Cell, found

from unfade import Recoverer
from unfade.demo import corrupt
from unfade.paper.datasets import load
from unfade.training.loop import Progress

DATA, LEVELS = ("mnist", "fashion-mnist"), (0.05, 0.1, 0.2)


def learned(folder: Path, device: str, cell: Cell) -> dict:
    """Learn the noise level of corrupted images."""
    holed = corrupt(load(cell.table, folder).train[:10_000], 0.5, float(cell.setting), seed=cell.seed)
    rec = Recoverer(
        noise="learn", scaling="joint-interval", bounds=(0, 1), device=device, random_state=cell.seed, verbose=0
    )
    lengths: list[int] = []  # of the stages, as they begin

    def later(progress: Progress) -> bool:
        lengths.append(progress.steps)
        return progress.steps != lengths[0]

    rec.fit(holed, on_step=later)
    return {"sd": float(rec.noise_)}


def _shown(cells: list[Cell]) -> str:
    results = [result for cell in cells if "sd" in (result := found(cell))]
    seconds = np.mean([result["cpu_seconds"] for result in results]) if results else 0
    return f"{np.mean([result['sd'] for result in results]):.4f} ({seconds:.0f} CPU s)" if results else ""


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    chosen = parser_of(__doc__, seeds=1).parse_args(arguments)
    cells = [Cell("noise", data, str(level), s, "unfade") for level in LEVELS for data in DATA for s in range(chosen.seeds)]
    if not chosen.report:
        run_all(cells, 1, lambda cell: learned(chosen.data_dir, chosen.device, cell))
    rows = [
        [str(level), *(_shown([c for c in cells if c[1:3] == (data, str(level))]) for data in DATA)] for level in LEVELS
    ]
    written("noise", markdown(["true sd", *DATA], rows))


if __name__ == "__main__":
    main()
