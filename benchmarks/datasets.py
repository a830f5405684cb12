"""The tables of the boards, and how cells are taken away from them. The truth reaches the scorer only."""

from pathlib import Path

import numpy as np
import pandas as pd
import torch

from unfade.corruption.noise import mask_at_random, mask_given_others
from unfade.io.tables import read_table

TABLES = {  # name: how many rows, chosen by a seed (None: all)
    "concrete": None,
    "wine_quality_red": None,
    "wine_quality_white": 1000,
    "breast_cancer_diagnostic": None,
    "uci_energy": None,
    "uci_yacht": None,
    "uci_airfoil": None,
    "uci_parkinsons": 1000,
    "spambase": 1000,
    "ionosphere": None,
}
# 30 % missing in each; noise: of 0.3 column sds on what is observed, given to the methods that take a noise level
SETTINGS = ("MCAR", "MAR", "noise")
CATEGORIES = {"adult_train_missing": 2000, "titanic_missing": None, "penguins_missing": None, "horse_colic_missing": None}


def truth(name: str, folder: Path) -> np.ndarray:
    """Read the numbers of a table, without columns that never change."""
    table = read_table(folder / f"{name}.csv.gz")
    columns = [np.asarray(c, dtype=float) for c in table.columns if str(c.type) in ("double", "int64")]
    X = np.stack(columns, 1)
    rows = TABLES[name]
    if rows is not None:
        X = X[np.sort(np.random.default_rng(0).permutation(len(X))[:rows])]
    return X[:, X.std(0) > 0]


def corrupted(X: np.ndarray, setting: str, seed: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Return observations with NaN where cells are missing, and the sd of the noise per column (None: no noise)."""
    generator = torch.Generator().manual_seed(seed)
    clean = torch.from_numpy(X)
    mask = mask_given_others(clean, 0.3, generator) if setting == "MAR" else mask_at_random(clean.shape, 0.3, generator)
    noise = 0.3 * X.std(0) if setting == "noise" else None
    noisy = X if noise is None else X + noise * np.random.default_rng(seed).normal(size=X.shape)
    return np.where(mask.numpy(), noisy, np.nan), noise


def frame_of(name: str, folder: Path) -> pd.DataFrame:
    """Read a table with categories as text: texts, booleans, and integers of up to seven values, which are codes."""
    frame = pd.read_csv(folder / f"{name}.csv.gz")
    rows = CATEGORIES[name]
    if rows is not None:
        frame = frame.sample(rows, random_state=0).sort_index().reset_index(drop=True)
    for column in frame:
        values = frame[column].dropna()
        numeric = pd.api.types.is_numeric_dtype(values) and values.dtype != bool
        if not numeric or (values.nunique() <= 7 and (values == values.round()).all()):
            texts = values.astype(int).map("code {}".format) if numeric else values.map("{}".format)
            frame[column] = texts.reindex(frame.index).astype(object)
    return frame.loc[:, frame.nunique() > 1]
