"""C and lambda of the printed TAE by the habits of the author's code: `python benchmarks/c_lambda.py`.

Supplement D.1's grid on 8 x 8 digits, half of the pixels missing, noise of sd 0.1, known: 1,297 rows are trained on, 500
others are scored. Networks are the paper's, smaller. R - Q is the mean over the last steps; the method asks for C.
"""

from dataclasses import replace

import torch
from boards import parser_of, written
from report import markdown
from sklearn.datasets import load_digits
from store import Cell, found, keep

from unfade.models.architectures import PAPER
from unfade.paper.crossval import VALUES
from unfade.paper.datasets import Dataset
from unfade.paper.settings import Schedule
from unfade.paper.study import Setting, Study, corrupt, localisation
from unfade.paper.ways import ALL_WAYS
from unfade.training.loop import TrainingConfig

GRID = "TAE, author's habits"
OTHERS = ("MVAE", "MVAE, noise ignored, author's habits", "TAE as printed", "TAE, Xavier's weights")
SETTING = Setting("digits", 0.5)
SCHEDULE = Schedule(
    TrainingConfig(steps=2500, batch_size=50, learning_rate=1e-3),
    TrainingConfig(steps=600, batch_size=100, learning_rate=1e-3),
    scored=500,
)
NETWORKS = replace(PAPER, hidden=(100, 100), latent=10)
PAIRS = [(C, lam) for C in VALUES for lam in VALUES]


def digits() -> Dataset:
    """Return scikit-learn's digits in [0, 1], in an order drawn by a seed."""
    X, y = (torch.from_numpy(part) for part in load_digits(return_X_y=True))
    order = torch.randperm(len(X), generator=torch.Generator().manual_seed(0))
    X, y = (X / 16).float()[order], y[order]
    return Dataset("digits", X[:1297], X[1297:], y[:1297], y[1297:], (8, 8))


def cell(way: str, C: float = 10.0, lam: float = 2.0) -> Cell:
    """Return where a result is stored."""
    return Cell("c-lambda", "digits", f"C {C:g}, lambda {lam:g}", 0, way)


def run(study: Study, way: str, pairs: list[tuple[float, float]]) -> None:
    """Train one model for each pair, side by side, and store their scores."""
    data = digits()
    seen, asked = (corrupt(clean, SETTING, data, part) for clean, part in ((data.train, "train"), (data.test, "test")))
    settings = [{"C": C, "lam": lam} if ALL_WAYS[way].method == "tae-paper" else {} for C, lam in pairs]
    fits = study.fits(ALL_WAYS[way], [seen] * len(pairs), [0] * len(pairs), settings)
    posteriors = [fit.posterior for fit in fits]
    elbos = study.elbos(posteriors, [data.test] * len(pairs), [asked] * len(pairs))
    for pair, fit, elbo in zip(pairs, fits, elbos, strict=True):
        keep(cell(way, *pair), elbo | study.scores(fit.posterior, data.test, asked, refined=False) | localisation(fit))


def report() -> str:
    """Write ELBO and R - Q over the grid, and the other ways at C = 10 and lambda = 2."""
    stored = {pair: found(cell(GRID, *pair)) for pair in PAIRS}
    grid = [
        [f"C {C:g}", *(f"{stored[C, lam]['ELBO']:.1f}; {stored[C, lam]['R - Q']:.1f}" for lam in VALUES)]
        for C in VALUES
        if all(stored[C, lam] for lam in VALUES)
    ]
    names = "ELBO", "R - Q", "energy score", "coverage"
    others = [[way, *(f"{r[n]:.4g}" if n in r else "" for n in names)] for way in OTHERS if (r := found(cell(way)))]
    head = ["ELBO; R - Q", *(f"lambda {lam:g}" for lam in VALUES)]
    return f"{markdown(head, grid)}\n\n{markdown(['', *names], others)}\n"


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = parser_of(__doc__)
    parser.add_argument("--steps", type=int, default=SCHEDULE.training.steps)
    chosen = parser.parse_args(arguments)
    schedule = replace(SCHEDULE, training=replace(SCHEDULE.training, steps=chosen.steps))
    study = Study(schedule, None, torch.device(chosen.device), NETWORKS)
    for way, pairs in [(GRID, PAIRS), *((way, [(10.0, 2.0)]) for way in OTHERS)]:
        todo = [pair for pair in pairs if not found(cell(way, *pair))]
        if todo and not chosen.report:
            run(study, way, todo)
    written("c-lambda", report())


if __name__ == "__main__":
    main()
