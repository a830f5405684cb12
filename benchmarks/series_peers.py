"""SAITS and CSDI of PyPOTS on the settings of `time_series.py`: `python benchmarks/series_peers.py --data-dir FOLDER`.

For an environment of its own with `pip install pypots`. Both are trained on the training part and stop early by the hidden
cells of the validation part, which no other method sees; at most EPOCHS epochs (few of CSDI), sizes of PyPOTS'
examples. CSDI gives DRAWS draws, scored as those of unfade; its mean is their median, as there.
"""

from typing import Any

import numpy as np
import torch
from boards import parser_of, run_all
from store import Cell
from time_series import SETTINGS, masked, scores

EPOCHS, PATIENCE, DRAWS = {"SAITS": 100, "CSDI": 10}, 10, 10  # CSDI would take hours on a CPU
METHODS = list(EPOCHS)


def network(method: str, steps: int, columns: int, seed: int) -> Any:
    """Build a network of PyPOTS."""
    from pypots.imputation import CSDI, SAITS
    from pypots.utils.random import set_random_seed

    set_random_seed(seed)
    how: dict[str, Any] = {"epochs": EPOCHS[method], "patience": PATIENCE, "device": "cpu", "verbose": False}
    if method == "SAITS":
        return SAITS(steps, columns, n_layers=2, d_model=256, n_heads=4, d_k=64, d_v=64, d_ffn=128, dropout=0.1, **how)
    sizes = {"n_channels": 64, "d_time_embedding": 128, "d_feature_embedding": 16, "d_diffusion_embedding": 128}
    return CSDI(steps, columns, n_layers=4, n_heads=8, n_diffusion_steps=50, **sizes, **how)


def result(data_dir: Any, cell: Cell) -> dict[str, Any]:
    """Train one method on one setting and score it on the test part."""
    torch.set_num_threads(1)
    whole, masks, given, _ = masked(cell.table, cell.setting, cell.seed, data_dir)
    model = network(cell.method, whole[0].shape[1], whole[0].shape[2], cell.seed)
    model.fit({"X": given[0]}, {"X": given[1], "X_ori": whole[1]})
    test = {"X": given[2]}
    truth, cells, draws = whole[2], masks[2], None
    if cell.method == "SAITS":
        mean = np.asarray(model.predict(test)["imputation"])
    else:
        draws = np.asarray(model.predict(test, n_sampling_times=DRAWS)["imputation"]).swapaxes(0, 1).astype(float)
        mean = np.median(draws, axis=0)
    score = {"MAE": float(np.abs(mean - truth)[cells].mean()), "hidden": float(cells.mean())}
    return score if draws is None else score | scores(draws, truth, cells)


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = parser_of(__doc__, METHODS, seeds=1)
    parser.add_argument("--tables", nargs="*", default=["ETT_h1", "Italy Air"])
    parser.add_argument("--settings", nargs="*", choices=SETTINGS, default=SETTINGS)
    options = parser.parse_args(arguments)
    cells = [
        Cell("time_series", name, setting, seed, method)
        for method in options.methods
        for seed in range(options.seeds)
        for name in options.tables
        for setting in options.settings
    ]
    run_all(cells, 1, lambda cell: result(options.data_dir, cell))


if __name__ == "__main__":
    main()
