"""Methods by name, unfade's and the peers': `complete("mice cart", Y, seed=0)` gives draws, CPU seconds and peak memory."""

import time
from typing import Any

import numpy as np
import pandas as pd
import peers
from boards import alone
from peers import cpu_seconds, peak_memory

from unfade import Recoverer
from unfade.models.architectures import architecture_for
from unfade.training.loop import TrainingConfig

DRAWS = 20
OURS: dict[str, dict[str, Any]] = {"unfade": {"method": "auto"}, "MIWAE": {"method": "miwae"}}  # options of `Recoverer`
METHODS = [*OURS, "column draws", *peers.PEERS, *peers.R_PEERS]
# The paper's posteriors on tables, on request: networks alone, the printed TAE with as many steps as the others.
PAPERS: dict[str, dict[str, Any]] = {
    "networks": {"method": "auto", "settings": {"posterior": "forward"}},
    "TAE, exact bound": {"method": "auto", "settings": {"posterior": "bound"}},
    "MVAE": {"method": "mvae"},
    "TAE as printed": {"method": "tae-paper", "training": TrainingConfig(learning_rate=5e-4)},
}
Data = np.ndarray | pd.DataFrame


def complete(
    method: str, data: Data, seed: int, draws: int = DRAWS, noise: np.ndarray | None = None, apart: bool = True,
    **options: Any,
) -> dict[str, Any]:  # fmt: skip
    """Fill in data by a method, in a process of its own.

    noise: its sd per column, given to the methods that take one. apart: False for unfade's methods in this process,
    without the seconds that a process takes to start. options: of `Recoverer`.
    Returns draws (draws, rows, columns) as an array, or for a frame as one frame with a table below the other;
    cpu_seconds without the imports, and memory, the peak of the process in MB.
    """
    if method == "column draws":
        return _column_draws(data, draws, seed)
    if own := {**OURS, **PAPERS}.get(method):
        given = data, seed, draws, noise, {**own, **options}
        return _finite(alone(_ours, *given) if apart else _ours(*given))
    if isinstance(data, np.ndarray):
        return _finite(_peer(method, data, draws, seed, noise))
    return peers.run_frame(method, data, draws, seed)


def _ours(data: Data, seed: int, draws: int, noise: np.ndarray | None, options: dict[str, Any]) -> dict[str, Any]:
    """Fit and draw by unfade; beside the draws, what the fit itself reports of its coverage."""
    clock, started = time.perf_counter(), cpu_seconds()
    if options["method"] == "tae-paper":  # the networks that the others have
        options["architecture"] = architecture_for(*np.shape(data))
    rec = Recoverer(**options, noise=noise, random_state=seed, verbose=0).fit(data)
    drawn = rec.sample(data, draws)
    values = drawn.values if isinstance(data, np.ndarray) else pd.concat(list(drawn))
    result = {"draws": values, "cpu_seconds": cpu_seconds() - started, "memory": peak_memory()}
    result["seconds"] = time.perf_counter() - clock
    result["stages"] = [str(history) for history in rec.histories_]
    if rec.held_out_ is not None:
        result["held out: coverage"] = float(rec.held_out_.covered().mean())
        result["held out: nominal coverage"] = rec.held_out_.due()
    return result


def _peer(name: str, Y: np.ndarray, draws: int, seed: int, noise: np.ndarray | None) -> dict[str, Any]:
    """Run a peer on standardised columns; the noise in units of the columns' sd, on average."""
    centre, scale = np.nanmean(Y, 0), np.nanstd(Y, 0)
    scale[scale == 0] = 1.0
    level = 0.0 if noise is None else float(np.mean(noise / scale))
    found = peers.run(name, (Y - centre) / scale, draws, seed, level)
    return {**found, "draws": found["draws"] * scale + centre}


def _column_draws(data: Data, draws: int, seed: int) -> dict[str, Any]:
    """Fill each missing cell with an observed value of its column, drawn at random: the least that any method must beat."""
    rng, started = np.random.default_rng(seed), cpu_seconds()
    frame = pd.DataFrame(data)
    picked = [frame.apply(lambda c: c.where(c.notna(), rng.choice(c.dropna().to_numpy(), len(c)))) for _ in range(draws)]
    drawn = np.stack([p.to_numpy() for p in picked]) if isinstance(data, np.ndarray) else pd.concat(picked)
    return {"draws": drawn, "cpu_seconds": cpu_seconds() - started, "memory": None}


def _finite(found: dict[str, Any]) -> dict[str, Any]:
    """Refuse results in which numbers are missing or infinite: such a method has failed."""
    if isinstance(found["draws"], np.ndarray) and not np.isfinite(found["draws"]).all():
        raise RuntimeError("draws are not finite")
    return found
