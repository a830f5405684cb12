"""Chained trees with donors: each column by a tree on the others; a draw is the value of a row in the same leaf.

    x_j ~ p(x_j | x_-j),  one column after the other, for several sweeps (chained equations with trees, as in "cart").

A donor's value is one that was observed, so ties, zeros, bounds and integers hold by themselves. Where a linear
regression predicts a column well, the tree and its donors are those of its residuals (`slope`). Trees see y, not x:
where a column carries noise, the spread about the mean of a leaf is reduced by it (a deconvolution).
`tree_fitting.py` fits them.
"""

import torch
from torch import Tensor, nn

from unfade.corruption.noise import Corruption
from unfade.data.observations import Observations
from unfade.rng import Normals

SWEEPS = 6
_TINY = 1e-6


class ChainedTrees(nn.Module):
    """q(x|y) by chained trees; has what an `Ensemble` asks of a posterior.

    Parameters
    ----------
    corruption : how clean values became observed
    parts : the tensors, by name:
        roots (chains, columns): first node of each tree; spans (chains, columns, 2): first and number of its donors;
        feature, threshold, centre (nodes,): of splits (-1 in leaves), mean of the donors; child (nodes, 2): left and
        right, in leaves first and number of donors; donors: values by leaf; slope (chains, columns, features + 1):
        regression under each tree, its constant last; ends (2, columns): least and largest value; kept (columns,):
        share of a leaf's variance that is not noise
    """

    unknowns = None
    model = None
    own_prior = conditioned = False
    decoder_sees = True
    roots: Tensor
    spans: Tensor
    feature: Tensor
    threshold: Tensor
    child: Tensor
    centre: Tensor
    donors: Tensor
    slope: Tensor
    ends: Tensor
    kept: Tensor

    def __init__(self, corruption: Corruption, parts: dict[str, Tensor]):
        super().__init__()
        self.corruption = corruption
        self.blocks = column_blocks(corruption, parts["slope"].shape[-1] - 1)
        self._known_paths: tuple[Tensor, Tensor, Tensor, list[int]] | None = None
        for name, tensor in parts.items():
            self.register_buffer(name, tensor)

    def check(self) -> None:
        """Refuse, by a ValueError, tensors that do not fit together: those of a damaged or crafted file."""
        (chains, columns), nodes, features = self.roots.shape, len(self.feature), self.slope.shape[-1] - 1
        shapes = {
            "roots": (chains, columns), "spans": (chains, columns, 2), "feature": (nodes,), "threshold": (nodes,),
            "centre": (nodes,), "child": (nodes, 2), "slope": (chains, columns, features + 1), "ends": (2, columns),
            "kept": (columns,),
        }  # fmt: skip
        wrong = [name for name, shape in shapes.items() if tuple(getattr(self, name).shape) != shape]
        if wrong or columns != len(self.blocks) or not chains or not len(self.donors):
            raise ValueError(f"trees of {chains} chains and {columns} columns, but {wrong} of other sizes")
        leaf = self.feature < 0
        own, after = torch.arange(nodes, device=leaf.device)[~leaf, None], self.child[~leaf]
        donors = torch.cat([self.child[leaf], self.spans.flatten(0, 1)])
        fits = (
            (self.roots >= 0).all() and (self.roots < nodes).all() and (self.feature < features).all()
            and (after > own).all() and (after < nodes).all()  # children stand behind: every path ends
            and (donors[:, 0] >= 0).all() and (donors[:, 1] > 0).all() and (donors.sum(1) <= len(self.donors)).all()
        )  # fmt: skip
        if not fits:
            raise ValueError("trees whose nodes or donors are not there")

    def drawn_with(self, n_candidates: int) -> "ChainedTrees":
        """What draws are made with."""
        return self

    def source(self, obs: Observations, n_candidates: int = 0, normals: Normals | None = None) -> None:
        """Nothing: each draw is a chain of its own."""

    def draw(self, obs: Observations, draws: int, normals: Normals, source: None = None, first: int = 0) -> Tensor:
        """Draws of x, (draws, samples, features); first: number of the first draw, on which its chain depends."""
        return self._run(obs, draws, normals, first)

    def mean(self, obs: Observations, draws: int, normals: Normals, source: None = None) -> Tensor:
        """Posterior mean of x, (samples, features): that of the leaves which the chains end in."""
        return self._run(obs, draws, normals, 0, central=True).mean(0)

    def _run(self, obs: Observations, draws: int, normals: Normals, first: int, central: bool = False) -> Tensor:
        chains = torch.arange(first, first + draws, device=obs.values.device) % len(self.roots)
        missing = [(~obs.observed[:, low]).nonzero().flatten() for low, _ in self.blocks]
        x = (obs.values * obs.observed).expand(draws, *obs.values.shape).clone()
        for sweep in range(SWEEPS + 1):  # the first draws from all donors of a column
            share = torch.special.ndtr(normals(draws, len(obs), len(self.blocks))).clamp(_TINY, 1 - _TINY)
            for column, rows in enumerate(missing):
                if len(rows):
                    last = central and sweep == SWEEPS
                    self._impute(x, rows, column, chains, share[:, rows, column], bool(sweep), last)
        return self._denoised(x, obs, chains, normals, central)

    def _impute(
        self, x: Tensor, rows: Tensor, column: int, chains: Tensor, share: Tensor, given: bool, central: bool
    ) -> None:
        """Draw the missing cells of a column in place; given: from the leaves that the other columns lead to."""
        low, high = self.blocks[column]
        part = x[:, rows]
        leaves = self._leaves(part, column, chains) if given else None
        span = self.spans[chains, column][:, None] if leaves is None else self.child[leaves]
        drawn = self.donors[span[..., 0] + (share * span[..., 1]).long()]
        if high - low > 1:
            x[:, rows, low:high] = torch.nn.functional.one_hot(drawn.long(), high - low).to(x.dtype)
            return
        if leaves is None:
            x[:, rows, low] = drawn
            return
        centre = self.centre[leaves]
        drawn = centre if central else centre + self.kept[column].sqrt() * (drawn - centre)
        drawn = (drawn + self._regressed(part, column, chains)).clamp(self.ends[0, column], self.ends[1, column])
        x[:, rows, low] = drawn if central else self.corruption.snapped(drawn, low)

    def _leaves(self, x: Tensor, column: int, chains: Tensor) -> Tensor:
        """The leaf that each row falls in, (draws, rows)."""
        split, threshold, following, heights = self._paths()
        node = self.roots[chains, column][:, None].expand(x.shape[:2]).reshape(-1)
        flat, first = x.reshape(-1), torch.arange(len(node), device=x.device) * x.shape[-1]
        for _ in range(heights[column]):
            right = flat.take(first + split.take(node)) > threshold.take(node)
            node = following.take(torch.add(right, node, alpha=2))
        return node.reshape(x.shape[:2])

    def _paths(self) -> tuple[Tensor, Tensor, Tensor, list[int]]:
        """Feature, threshold and two following nodes of each node, leaves followed by themselves; heights of the columns.

        A number in single precision is above a threshold if it is above the next single one below that.
        """
        if self._known_paths is None or self._known_paths[0].device != self.feature.device:
            leaf, near = self.feature < 0, self.threshold.float()
            below = torch.where(near.double() > self.threshold, near.nextafter(torch.full_like(near, -torch.inf)), near)
            own = torch.arange(len(leaf), device=leaf.device)[:, None].expand(-1, 2)
            following = torch.where(leaf[:, None], own, self.child)
            height, taller = torch.zeros_like(self.feature), (~leaf).long()
            while not torch.equal(height, taller):
                height, taller = taller, torch.where(leaf, 0, 1 + taller[following].amax(1))
            tallest = height[self.roots].amax(0).tolist()
            split = self.feature.clamp(min=0)
            self._known_paths = split, below.masked_fill(leaf, torch.inf), following.reshape(-1), tallest
        return self._known_paths

    def _regressed(self, x: Tensor, column: int, chains: Tensor) -> Tensor | float:
        """The regression under the tree, (draws, rows); 0 where the column has none."""
        slope = self.slope[chains, column][:, None]
        return (x * slope[..., :-1]).sum(-1) + slope[..., -1] if bool(slope.any()) else 0.0

    def _denoised(self, x: Tensor, obs: Observations, chains: Tensor, normals: Normals, central: bool) -> Tensor:
        """Clean values of cells that were observed with noise: the mean of the leaf and y, each by its precision."""
        exact = self.corruption.exact.expand(x.shape[-1])
        noisy = [(c, low) for c, (low, high) in enumerate(self.blocks) if high - low == 1 and not bool(exact[low])]
        if not noisy:
            return x
        clean, numbers, std = x.clone(), normals(*x.shape), self.corruption.std.expand(x.shape[-1])
        for column, feature in noisy:
            rows = obs.observed[:, feature].nonzero().flatten()
            part, kept = x[:, rows], self.kept[column]
            centre = self.centre[self._leaves(part, column, chains)] + self._regressed(part, column, chains)
            value = centre + kept * (part[..., feature] - centre)
            clean[:, rows, feature] = value if central else value + std[feature] * kept.sqrt() * numbers[:, rows, feature]
        return clean


def column_blocks(corruption: Corruption, features: int) -> list[tuple[int, int]]:
    """The features of each column, (first, one after last): one of a number, all values of a category."""
    numbers = features - corruption.categorical
    return [(j, j + 1) for j in range(numbers)] + list(getattr(corruption, "groups", ()))


def blank_trees(corruption: Corruption, features: int, state: dict[str, Tensor]) -> ChainedTrees:
    """Build trees of the shapes of a state, to be filled in."""
    names = ("roots", "spans", "feature", "threshold", "child", "centre", "donors", "slope", "ends", "kept")
    if missing := [name for name in names if name not in state]:
        raise ValueError(f"trees without {missing}")
    if state["slope"].ndim != 3 or state["slope"].shape[-1] != features + 1:
        raise ValueError(f"trees of {tuple(state['slope'].shape)} slopes for {features} features")
    return ChainedTrees(corruption, {name: torch.zeros_like(state[name]) for name in names})
