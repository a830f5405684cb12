"""The state-space model: a vector autoregression around seasonal means, seen with noise and gaps.

    x_t = s_t B + z_t,   z_t = A_1 z_{t-1} + ... + A_p z_{t-p} + w_t,  w_t ~ N(0, Q),   y_t = x_t + e_t on observed cells,

s_t the regressors of the season. Means are the Kalman smoother's, draws those of the simulation smoother (Durbin and
Koopman, 2002): a path that knows no data, plus the smoothed difference to the data. Both are exact and linear in length.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unfade.corruption.noise import Corruption

_LEAST = 1e-4  # sd of the noise at least, in model space: keeps covariances of exact cells invertible
_MEMORY = 0.999  # of the slowest mode per step, at most


@dataclass(frozen=True)
class Gains:
    """What the Kalman filter needs of which cells are seen, (steps, windows, ...): it serves all draws.

    gain: of the filter; precision: of innovations, 0 where nothing is seen; covariance: of x_t and the state, predicted.
    """

    gain: Tensor
    precision: Tensor
    covariance: Tensor
    transition: Tensor


class StateSpace(nn.Module):
    """q(x|y) of a vector autoregression; parameters are buffers in double precision.

    lags: (p, columns, columns); root: of Q, lower triangular; season: coefficients B, (regressors, columns).
    """

    unknowns = None
    model = None
    own_prior = conditioned = False
    decoder_sees = True
    lags: Tensor
    root: Tensor
    season: Tensor

    def __init__(self, corruption: Corruption, lags: Tensor, root: Tensor, season: Tensor):
        super().__init__()
        self.corruption = corruption
        self.register_buffer("lags", lags.double())
        self.register_buffer("root", root.double())
        self.register_buffer("season", season.double())

    @property
    def columns(self) -> int:
        """Number of columns of x."""
        return self.root.shape[0]

    @property
    def states(self) -> int:
        """Numbers of the state."""
        return self.columns * len(self.lags)

    @property
    def noise_variance(self) -> Tensor:
        """Variance of the noise per column, (columns,)."""
        return self.corruption.std.detach().double().expand(self.columns).clamp(min=_LEAST).square()

    def transition(self) -> Tensor:
        """Matrix of the state (z_t, ..., z_{t-p+1}), (p columns, p columns)."""
        p, columns = self.lags.shape[:2]
        first = self.lags.movedim(0, 1).reshape(columns, p * columns)
        return torch.cat([first, torch.eye((p - 1) * columns, p * columns, dtype=first.dtype)])

    def innovation(self) -> Tensor:
        """Q as a covariance of the state."""
        size, columns = self.transition().shape[0], self.columns
        covariance = torch.zeros(size, size, dtype=torch.float64)
        covariance[:columns, :columns] = self.root @ self.root.T
        return covariance

    def stationary(self) -> Tensor:
        """Covariance of the state without data, by doubling."""
        power, covariance = self.transition(), self.innovation()
        for _ in range(20):
            covariance = covariance + power @ covariance @ power.T
            power = power @ power
        return (covariance + covariance.T) / 2

    def gains(self, seen: Tensor) -> Gains:
        """Run the covariances of the Kalman filter; seen: (windows, steps, columns)."""
        transition, innovation, columns = self.transition(), self.innovation(), self.columns
        covariance = self.stationary().expand(len(seen), -1, -1)
        noise, eye = torch.diag(self.noise_variance), torch.eye(columns, dtype=torch.float64)
        parts: list[tuple[Tensor, Tensor, Tensor]] = []
        for mask in seen.double().unbind(1):
            there = mask[:, :, None] * mask[:, None, :]
            spread = (covariance[:, :columns, :columns] + noise) * there + eye * (1 - mask[:, :, None])
            precision = torch.cholesky_inverse(torch.linalg.cholesky(spread)) * there
            gain = covariance[:, :, :columns] @ precision
            parts.append((gain, precision, covariance[:, :columns]))
            left = covariance - gain @ covariance[:, :columns]
            covariance = transition @ left @ transition.T + innovation
            covariance = (covariance + covariance.mT) / 2
        gain, precision, predicted = (torch.stack(part) for part in zip(*parts, strict=True))
        return Gains(gain, precision, predicted, transition)

    def smoothed(self, y: Tensor, gains: Gains) -> Tensor:
        """E[z|y] of paths with seasonal means removed, (paths, windows, steps, columns); unseen cells are ignored."""
        state = torch.zeros(*y.shape[:2], gains.gain.shape[2], dtype=torch.float64)
        transition, columns, steps = gains.transition, self.columns, y.shape[2]
        means, scores = [], []
        for t in range(steps):
            far = (y[:, :, t] - state[..., :columns])[..., None]
            means.append(state[..., :columns])
            scores.append((gains.precision[t] @ far)[..., 0])
            state = (state + (gains.gain[t] @ far)[..., 0]) @ transition.T
        back, result = torch.zeros_like(state), [torch.empty(0)] * steps
        for t in reversed(range(steps)):
            back = back @ transition
            pull = scores[t] - (gains.gain[t].mT @ back[..., None])[..., 0]
            back = torch.cat([back[..., :columns] + pull, back[..., columns:]], -1)
            result[t] = means[t] + (gains.covariance[t] @ back[..., None])[..., 0]
        return torch.stack(result, 2)

    def innovations(self, y: Tensor, gains: Gains) -> Tensor:
        """Standardise what each seen cell adds to the past and to the other cells of its step: N(0, 1) if the model holds.

        y: paths with seasonal means removed, (paths, windows, steps, columns); 0 where nothing is seen.
        """
        state, found = torch.zeros(*y.shape[:2], self.states, dtype=torch.float64), []
        for t in range(y.shape[2]):
            far = (y[:, :, t] - state[..., : self.columns])[..., None]
            own = gains.precision[t].diagonal(dim1=-2, dim2=-1)
            found.append((gains.precision[t] @ far)[..., 0] / own.clamp(min=1e-300).sqrt())
            state = (state + (gains.gain[t] @ far)[..., 0]) @ gains.transition.T
        return torch.stack(found, 2)

    def path(self, innovations: Tensor, start: Tensor) -> Tensor:
        """Run z without data: innovations (draws, windows, steps, columns) and state before the first, standard normal."""
        size, columns = self.transition().shape[0], self.columns
        root = torch.linalg.cholesky(self.stationary() + 1e-10 * torch.eye(size, dtype=torch.float64))
        state, found = start @ root.T, []
        shocks, transition = innovations @ self.root.T, self.transition()
        for t in range(shocks.shape[2]):
            state = state @ transition.T
            state = torch.cat([state[..., :columns] + shocks[:, :, t], state[..., columns:]], -1)
            found.append(state[..., :columns])
        return torch.stack(found, 2)

    def simulate(self, y: Tensor, seen: Tensor, gains: Gains, normals: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """Draw z given y, (draws, windows, steps, columns); normals: of innovations, of the noise, of the first state."""
        innovations, noise, start = normals
        path = self.path(innovations, start)
        apart = (y - path - noise * self.noise_variance.sqrt()) * seen
        return path + self.smoothed(apart, gains)

    def log_likelihood(self, y: Tensor, seen: Tensor) -> Tensor:
        """log p(y) per window, y with seasonal means removed, (windows, steps, columns)."""
        gains, total = self.gains(seen), torch.zeros(len(y), dtype=torch.float64)
        state = torch.zeros(len(y), gains.gain.shape[2], dtype=torch.float64)
        for t in range(y.shape[1]):
            far = (y[:, t] - state[:, : self.columns]) * seen[:, t]
            weighted = (gains.precision[t] @ far[..., None])[..., 0]
            filled = gains.precision[t] + torch.diag_embed((~seen[:, t]).double())
            count = seen[:, t].sum(-1) * torch.log(torch.tensor(2 * torch.pi, dtype=torch.float64))
            total += (torch.linalg.slogdet(filled)[1] - (far * weighted).sum(-1) - count) / 2
            state = (state + (gains.gain[t] @ far[..., None])[..., 0]) @ gains.transition.T
        return total


def stable(lags: Tensor) -> Tensor:
    """Shrink a transition whose slowest mode does not fade, (p, columns, columns)."""
    p, columns = lags.shape[:2]
    first = lags.movedim(0, 1).reshape(columns, p * columns)
    whole = torch.cat([first, torch.eye((p - 1) * columns, p * columns, dtype=first.dtype)])
    radius = float(torch.linalg.eigvals(whole).abs().max())
    shrink = min(1.0, _MEMORY / radius)
    return lags * torch.tensor([shrink ** (k + 1) for k in range(p)], dtype=lags.dtype)[:, None, None]


def blank_state_space(corruption: Corruption, features: int, state: dict[str, Tensor]) -> StateSpace:
    """Build a state-space model of the shapes of a state, to be filled in."""
    lags, root, season = (state[name] for name in ("lags", "root", "season"))
    if lags.ndim != 3 or lags.shape[1:] != (features, features) or root.shape != (features, features):
        raise ValueError(f"a state space of {tuple(lags.shape)} lags for {features} features")
    if season.ndim != 2 or season.shape[1] != features or not len(lags):
        raise ValueError(f"seasons of {tuple(season.shape)} for {features} features")
    return StateSpace(corruption, torch.zeros_like(lags), torch.zeros_like(root), torch.zeros_like(season))
