"""Fit a state-space model by stochastic expectation-maximisation: draw the paths, then regress each step on the last.

The sums that the regressions need are averaged over rounds (Delyon, Lavielle and Moulines, 1999), so the parameters
settle at those of greatest likelihood.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from unfade.corruption.noise import Corruption
from unfade.models.state_space import StateSpace, stable

_FIRST = 0.5  # share of the rounds before averaging begins
_FAST = 1.8  # over-relaxation of the noise before averaging begins: alone, it creeps
_RIDGE = 1e-3  # steps' worth of a prior: no relation between columns


@dataclass
class _Sums:
    """Sums over drawn steps: of the state before with itself, with the state after, of that with itself; of the noise."""

    before: Tensor
    cross: Tensor
    after: Tensor
    noise: Tensor

    def towards(self, other: "_Sums", share: float) -> "_Sums":
        """Move a share of the way to other sums."""
        pairs = ((getattr(self, name), getattr(other, name)) for name in ("before", "cross", "after", "noise"))
        return _Sums(*(torch.lerp(a, b, share) for a, b in pairs))


RoundsLeft = Callable[[int], int]  # by the number of rounds that are done


def state_space(
    y: Tensor, seen: Tensor, season: Tensor, corruption: Corruption, seed: int, lags: int = 2, rounds: int = 40
) -> StateSpace:
    """Fit to windows of data; where the corruption's noise is to be learned, it is, in place.

    Parameters
    ----------
    y, seen, season, corruption, seed, lags, rounds : as in `rounds_of`

    Returns
    -------
    StateSpace
    """
    *_, model = rounds_of(y, seen, season, corruption, seed, lags, lambda done: rounds - done)
    return model


def rounds_of(
    y: Tensor, seen: Tensor, season: Tensor, corruption: Corruption, seed: int, lags: int, rounds_left: RoundsLeft
) -> Iterator[StateSpace]:
    """Fit to windows of data and give the model after each round.

    Parameters
    ----------
    y, seen : Tensor, (windows, steps, columns)
    season : Tensor, (windows, steps, regressors)
        The first is 1.
    corruption : Corruption
    seed : int
    lags : int
    rounds_left : callable
        Asked before each round how many to do yet; the first answer is the most.

    Returns
    -------
    iterator of StateSpace
        One model, which each round changes in place.
    """
    y, seen, season = y.double(), seen.bool(), season.double()
    generator = torch.Generator().manual_seed(seed)
    model = _first(y, seen, season, corruption, lags)
    z, learned = (y - season @ model.season) * seen, _learned(corruption, y.shape[-1])
    sums: _Sums | None = None
    done, left = 0, rounds_left(0)
    while left > 0:
        late = done + 1 - int(_FIRST * (done + left))
        found = _sums(_drawn(model, z, seen, generator), z, seen, lags)
        sums = found if sums is None or late <= 1 else sums.towards(found, 1 / late)
        _maximise(model, sums, learned, _FAST if late <= 1 else 1.0)
        yield model
        done += 1
        left = min(left - 1, rounds_left(done))


def _learned(corruption: Corruption, columns: int) -> Tensor:
    """Find the columns whose noise is to be learned, (columns,)."""
    return corruption.searched.expand(columns).clone() if corruption.learned else torch.zeros(columns, dtype=torch.bool)


def _first(y: Tensor, seen: Tensor, season: Tensor, corruption: Corruption, lags: int) -> StateSpace:
    """Start from columns without relations, of slow autoregressions."""
    coefficients, columns = _season(y, seen, season), y.shape[-1]
    z = (y - season @ coefficients) * seen
    spread = (z.square().sum((0, 1)) / seen.sum((0, 1)).clamp(min=1)).clamp(min=1e-6)
    memory = 0.98 if _learned(corruption, columns).any() else 0.9  # smooth, so that the noise is reached from above
    first = torch.cat([memory * torch.eye(columns).double()[None], torch.zeros(lags - 1, columns, columns).double()])
    return StateSpace(corruption, first, torch.diag(((1 - memory**2) * spread).sqrt()), coefficients)


def _season(y: Tensor, seen: Tensor, season: Tensor) -> Tensor:
    """Regress what is seen on the season, with a little shrinkage, (regressors, columns)."""
    weighted = torch.einsum("btr,btc,bts->crs", season, seen.double(), season)
    ridge = torch.eye(season.shape[-1], dtype=torch.float64)
    ridge[0, 0] = 1e-6
    right = torch.einsum("btr,btc->cr", season, y * seen)
    return torch.linalg.solve(weighted + ridge, right).T


@torch.no_grad()
def _drawn(model: StateSpace, z: Tensor, seen: Tensor, generator: torch.Generator) -> Tensor:
    shape, size = (1, *z.shape), model.transition().shape[0]
    sizes = (shape, shape, (1, len(z), size))
    normals = tuple(torch.randn(size, generator=generator, dtype=torch.float64) for size in sizes)
    return model.simulate(z[None], seen, model.gains(seen), normals)[0]  # type: ignore[arg-type]


def _sums(x: Tensor, z: Tensor, seen: Tensor, lags: int) -> _Sums:
    steps = x.shape[1]
    before = torch.cat([x[:, lags - k : steps - k] for k in range(1, lags + 1)], -1).flatten(0, 1)
    after = x[:, lags:].flatten(0, 1)
    noise = ((z - x).square() * seen).sum((0, 1)) / seen.sum((0, 1)).clamp(min=1)
    count = max(1, len(after))
    return _Sums(before.T @ before / count, before.T @ after / count, after.T @ after / count, noise)


def _maximise(model: StateSpace, sums: _Sums, learned: Tensor, pace: float) -> None:
    """Set the parameters to those that the sums ask for, in place; pace: above 1 the noise moves further (over-relaxed)."""
    columns, size = model.columns, len(sums.before)
    ridge = _RIDGE * torch.diag(sums.before.diagonal())
    solved = torch.linalg.solve(sums.before + ridge, sums.cross)  # (p columns, columns)
    lags = stable(solved.T.reshape(columns, size // columns, columns).movedim(1, 0))
    flat = lags.movedim(0, 1).reshape(columns, size).T
    left = sums.after - flat.T @ sums.cross - sums.cross.T @ flat + flat.T @ sums.before @ flat
    least = 1e-6 * sums.after.diagonal().clamp(min=1e-6)
    model.lags.copy_(lags)
    model.root.copy_(torch.linalg.cholesky((left + left.T) / 2 + torch.diag(least)))
    if learned.any():
        noise, known = model.corruption, model.corruption.std.detach().double().expand(len(learned))
        target = sums.noise if noise.by_entry else sums.noise[learned].mean()
        start = known.square() if noise.by_entry else known[learned].square().mean()
        found = start * (target / start.clamp(min=1e-12)) ** pace
        noise.set_level(torch.where(learned, found.sqrt(), known) if noise.by_entry else found.sqrt())
