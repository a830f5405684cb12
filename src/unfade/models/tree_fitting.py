"""Fit chained trees: sweeps over the columns, each tree on a bootstrap of the rows that were observed there."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from unfade.corruption.noise import Corruption
from unfade.data.observations import Observations
from unfade.models.trees import SWEEPS, ChainedTrees, column_blocks

CHAINS, MOST_ROWS = 12, 10_000
_LEAF, _NOISY_LEAF = 3, 5  # rows of a leaf at least
_FEATURES = (0.5, 0.5, 1.0, 1.0)  # shares of the features that splits choose from, chain by chain
_LEVEL = 0.1  # of CRPS: a column that trees with and without a regression predict as well as that is drawn by both
_CHOOSING = 6  # chains that say whether a regression helps
_FREQUENT, _FEW, _NARROWEST = 0.05, 30, 0.5  # share of a value; rows; share of a leaf's variance
_LEVELS = 20  # of a category that trees split by


@dataclass(frozen=True)
class _Tree:
    """A tree as arrays (nodes,), as `ChainedTrees` has them, and what it predicts of rows out of its bootstrap.

    unseen, middle: a draw for each of these rows, and the mean it varies about, (rows,), NaN for others; squares: the mean
    square distance of these rows from their leaf.
    """

    feature: np.ndarray
    threshold: np.ndarray
    child: np.ndarray
    centre: np.ndarray
    donors: np.ndarray
    slope: np.ndarray
    unseen: np.ndarray
    middle: np.ndarray
    squares: float
    grown: Any = None  # as scikit-learn has it


@dataclass(frozen=True)
class _Column:
    """A column, and what all of its trees share."""

    low: int
    high: int
    rows: np.ndarray  # where it is observed
    holes: np.ndarray
    inputs: np.ndarray  # features that its trees may split by
    leaf: int

    @property
    def category(self) -> bool:
        return self.high - self.low > 1


def chained_trees(
    obs: Observations, corruption: Corruption, seed: int, chains: int = CHAINS, deadline: float | None = None
) -> ChainedTrees:
    """Fit chained trees to what is observed.

    Parameters
    ----------
    obs : in model space, (samples, features); of more than 10,000 samples some, chosen by the seed
    corruption : how clean values became observed
    seed : on which all random numbers depend
    chains : trees of each column, each on completed data of its own
    deadline : by time.monotonic(); later sweeps are left out

    Returns
    -------
    ChainedTrees
    """
    rng = np.random.default_rng((seed, 3))
    chosen = np.sort(rng.permutation(len(obs))[:MOST_ROWS])
    some = obs[torch.from_numpy(chosen).to(obs.values.device)]
    values, seen = some.values.cpu().numpy().astype(np.float32), some.observed.cpu().numpy()
    columns = _columns(corruption, seen)
    state = np.repeat((values * seen)[None], chains, 0)
    for column in columns:
        _start(state, column, rng)
    order = sorted((c for c in range(len(columns)) if len(columns[c].rows)), key=lambda c: len(columns[c].holes))
    regressed = np.zeros((chains, len(columns)), dtype=bool)
    forest: dict[tuple[int, int], _Tree] = {}
    for sweep in range(SWEEPS):
        last = sweep == SWEEPS - 1 or (deadline is not None and time.monotonic() > deadline)
        for c in order:
            column = columns[c]
            if not last and not len(column.holes):  # its trees are for other rows
                continue
            if sweep == 2 or (last and not len(column.holes)):
                regressed[:, c] = _choose(state, column, rng)
            for chain in range(chains):
                tree = _grow(state[chain], chain, column, bool(regressed[chain, c]), rng)
                _impute(state[chain], column, tree, corruption, rng)
                forest[chain, c] = tree
        if last:
            break
    return _gather(forest, columns, corruption, values, chains)


def _columns(corruption: Corruption, seen: np.ndarray) -> list[_Column]:
    features, found = seen.shape[1], []
    blocks = column_blocks(corruption, features)
    usable = np.concatenate([np.arange(low, min(high, low + _LEVELS)) for low, high in blocks])
    exact = corruption.exact.expand(features)
    for low, high in blocks:
        inputs = usable[(usable < low) | (usable >= high)]
        leaf = _LEAF if bool(exact[low]) else _NOISY_LEAF
        found.append(_Column(low, high, np.flatnonzero(seen[:, low]), np.flatnonzero(~seen[:, low]), inputs, leaf))
    return found


def _start(state: np.ndarray, column: _Column, rng: np.random.Generator) -> None:
    """Fill missing cells with observed values of the column, in place."""
    if len(column.rows) and len(column.holes):
        for x in state:
            x[column.holes, column.low : column.high] = x[
                rng.choice(column.rows, len(column.holes)), column.low : column.high
            ]


def _target(x: np.ndarray, column: _Column) -> np.ndarray:
    if column.category:
        return x[column.rows, column.low : column.high].argmax(1).astype(np.float64)
    return x[column.rows, column.low].astype(np.float64)


def _choose(state: np.ndarray, column: _Column, rng: np.random.Generator) -> np.ndarray:
    """For which chains the column's trees stand on a regression: by rows that trees have not seen, (chains,)."""
    chains = len(state)
    if column.category or len(column.inputs) == 0:
        return np.zeros(chains, dtype=bool)
    y = _target(state[0], column)
    plain, over = (
        _pooled_crps(np.stack([_grow(x, k, column, on, rng).unseen for k, x in enumerate(state[:_CHOOSING])]), y)
        for on in (False, True)
    )
    if abs(plain - over) < _LEVEL * min(plain, over):
        return np.arange(chains) % 2 == 1
    return np.full(chains, over < plain)


def _pooled_crps(draws: np.ndarray, y: np.ndarray) -> float:
    """Mean CRPS of draws (chains, rows), NaN where a chain has none, of rows that have two or more."""
    count = (~np.isnan(draws)).sum(0)
    draws, y, count = draws[:, count > 1], y[count > 1], count[count > 1]
    apart = np.nansum(np.abs(draws[:, None] - draws[None]), (0, 1)) / (2 * count * (count - 1))
    return float(np.mean(np.nanmean(np.abs(draws - y), 0) - apart)) if len(y) else np.inf


def _grow(x: np.ndarray, chain: int, column: _Column, regressed: bool, rng: np.random.Generator) -> _Tree:
    """Grow a tree of a chain on a bootstrap of the rows where the column is observed; all of these are its donors."""
    inputs, rows = np.ascontiguousarray(x[column.rows][:, column.inputs]), column.rows
    y, slope = _target(x, column), np.zeros(x.shape[1] + 1)
    drawn = rng.integers(0, len(rows), len(rows))
    if regressed:
        slope[column.inputs], slope[-1] = _ridge(inputs[drawn].astype(np.float64), y[drawn])
        y = y - inputs @ slope[column.inputs] - slope[-1]
    kind = DecisionTreeClassifier if column.category else DecisionTreeRegressor
    if len(column.inputs) == 0 or len(rows) < 2:
        inputs = np.zeros((len(rows), 1), dtype=np.float32)
    share, chance = _FEATURES[chain % len(_FEATURES)], int(rng.integers(2**31))
    tree = kind(min_samples_leaf=column.leaf, max_features=share, random_state=chance)
    grown = tree.fit(inputs[drawn], y[drawn], check_input=False).tree_
    leaves = grown.apply(inputs)
    by_leaf = np.argsort(leaves, kind="stable")
    nodes = np.arange(grown.node_count)
    first = np.searchsorted(leaves[by_leaf], nodes)
    count = np.searchsorted(leaves[by_leaf], nodes, "right") - first
    donors = y[by_leaf]
    sums = np.concatenate([[0.0], np.cumsum(donors)])
    centre = (sums[first + count] - sums[first]) / np.maximum(count, 1)
    inner = grown.children_left >= 0
    child = np.where(inner[:, None], np.stack([grown.children_left, grown.children_right], 1), np.stack([first, count], 1))
    feature = np.where(inner, column.inputs[np.maximum(grown.feature, 0)] if len(column.inputs) else -1, -1)
    out = np.bincount(drawn, minlength=len(rows)) == 0
    unseen, middle, squares = _unseen(y, by_leaf, leaves, first, count, centre, out, rng)
    line = _target(x, column) - y
    return _Tree(feature, grown.threshold, child, centre, donors, slope, unseen + line, middle + line, squares, grown)


def _bare(features: int) -> _Tree:
    """A leaf with nothing but the middle of the model's space, of a column that was never observed."""
    zero = np.zeros(1)
    return _Tree(np.array([-1]), zero, np.array([[0, 1]]), zero, zero, np.zeros(features + 1), zero, zero, 1.0)


def _ridge(inputs: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
    middle, centre = inputs.mean(0), y.mean()
    apart = inputs - middle
    gram = apart.T @ apart + (1.0 + 1e-3 * len(y)) * np.eye(inputs.shape[1])
    slope = np.linalg.solve(gram, apart.T @ (y - centre))
    return slope, float(centre - middle @ slope)


def _unseen(
    y: np.ndarray, by_leaf: np.ndarray, leaves: np.ndarray, first: np.ndarray, count: np.ndarray, centre: np.ndarray,
    out: np.ndarray, rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, float]:  # fmt: skip
    """A donor's value for each row out of the bootstrap, the mean of its donors, and the mean square distance from that.

    A row is no donor of its own, here; rows that are alone in their leaf do not count.
    """
    place, drawn, middle = np.empty(len(y), dtype=int), np.full(len(y), np.nan), np.full(len(y), np.nan)
    place[by_leaf] = np.arange(len(y))
    rows = np.flatnonzero(out & (count[leaves] > 1))
    if not len(rows):
        return drawn, middle, float(y.var())
    leaf, own = leaves[rows], y[rows]
    picks = first[leaf] + (rng.random(len(rows)) * (count[leaf] - 1)).astype(int)
    drawn[rows] = y[by_leaf[picks + (picks >= place[rows])]]
    middle[rows] = (centre[leaf] * count[leaf] - own) / (count[leaf] - 1)
    return drawn, middle, float(np.mean((own - middle[rows]) ** 2))


def _impute(x: np.ndarray, column: _Column, tree: _Tree, corruption: Corruption, rng: np.random.Generator) -> None:
    """Draw the missing cells of a column in place, as they would be observed."""
    if not len(column.holes):
        return
    given = x[column.holes]
    node = tree.grown.apply(given[:, column.inputs] if len(column.inputs) else given[:, :1])
    first, count = tree.child[node].T
    drawn = tree.donors[first + (rng.random(len(given)) * count).astype(int)]
    if column.category:
        x[column.holes, column.low : column.high] = np.eye(column.high - column.low, dtype=np.float32)[drawn.astype(int)]
        return
    if tree.slope.any():
        own = x[column.rows, column.low]
        drawn = (drawn + given @ tree.slope[:-1] + tree.slope[-1]).clip(own.min(), own.max())
        drawn = corruption.snapped(torch.from_numpy(drawn.astype(np.float32)), column.low).numpy()
    x[column.holes, column.low] = drawn


def _narrowed(trees: list[_Tree], y: np.ndarray, noise: float) -> tuple[float, float]:
    """How far donors stay from the mean of their leaf, as a share, and the share of a leaf's variance that is not noise.

    Draws of all trees vary by more than the error of their mean: leaves are no smaller than a few rows, and trees differ.
    Rows out of the bootstraps say by how much. A column in which one value is frequent is left as it is.
    """
    kept = max(0.0, 1 - noise**2 / max(float(np.mean([tree.squares for tree in trees])), 1e-12))
    draws, middles = (np.stack([getattr(tree, name) for tree in trees]) for name in ("unseen", "middle"))
    count = (~np.isnan(draws)).sum(0)
    chosen = count > 2
    frequent = np.unique(y, return_counts=True)[1].max() > _FREQUENT * len(y)
    if frequent or chosen.sum() < _FEW or not kept:
        return 1.0, kept
    draws, middles, y, count = draws[:, chosen], middles[:, chosen], y[chosen], count[chosen]
    every, between = np.nanvar(draws, 0, ddof=1), np.nanvar(middles, 0, ddof=1).mean()
    error = np.mean((y - np.nanmean(draws, 0)) ** 2 - every / count) - noise**2
    share = (error - between) / max(kept * (every.mean() - between), 1e-12)
    return float(np.sqrt(np.clip(share, _NARROWEST, 1.0))), kept


def _gather(
    forest: dict[tuple[int, int], _Tree], columns: list[_Column], corruption: Corruption, values: np.ndarray, chains: int
) -> ChainedTrees:
    """All trees as one set of arrays."""
    trees = [forest.get((k, c)) or _bare(values.shape[1]) for k in range(chains) for c in range(len(columns))]
    nodes, kept = np.cumsum([0, *(len(t.feature) for t in trees)]), np.cumsum([0, *(len(t.donors) for t in trees)])
    child = [
        np.where(tree.feature[:, None] >= 0, tree.child + node, tree.child + np.array([donor, 0]))
        for tree, node, donor in zip(trees, nodes, kept, strict=False)
    ]
    spans = np.stack([kept[:-1], np.diff(kept)], 1)
    std, share = corruption.std.detach().cpu().expand(values.shape[1]).double().numpy(), np.ones(len(columns))
    ends = np.zeros((2, len(columns)))
    for c, column in enumerate(columns):
        if not column.category and len(column.rows):
            own = values[column.rows, column.low]
            ends[:, c] = own.min(), own.max()
            own_trees = [forest[k, c] for k in range(chains)]
            near, share[c] = _narrowed(own_trees, own.astype(np.float64), float(std[column.low]))
            for tree in own_trees:
                leaf = tree.feature < 0
                middle = np.repeat(tree.centre[leaf], tree.child[leaf, 1])
                tree.donors[:] = middle + near * (tree.donors - middle)
    shape = (chains, len(columns))
    whole = {
        "roots": nodes[:-1].reshape(shape),
        "spans": spans.reshape(*shape, 2),
        "feature": np.concatenate([t.feature for t in trees]),
        "child": np.concatenate(child),
    }
    parts = {name: torch.from_numpy(np.ascontiguousarray(part)).long() for name, part in whole.items()}
    parts["threshold"] = torch.from_numpy(np.concatenate([t.threshold for t in trees]))
    for name in ("centre", "donors"):
        parts[name] = torch.from_numpy(np.concatenate([getattr(t, name) for t in trees])).float()
    parts["slope"] = torch.from_numpy(np.stack([t.slope for t in trees]).reshape(*shape, -1)).float()
    parts |= {"ends": torch.from_numpy(ends).float(), "kept": torch.from_numpy(share).float()}
    return ChainedTrees(corruption, parts)
