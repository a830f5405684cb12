"""Corruptions p(y | x): they simulate, score, and condition in closed form."""

from abc import ABC, abstractmethod
from math import log, pi

import torch
from torch import Tensor, nn
from torch.distributions import Independent, Normal

from unfade.corruption.masks import (  # noqa: F401 (where they were)
    mask_at_random,
    mask_by_own_value,
    mask_given_others,
    mask_window,
)
from unfade.data.observations import Observations
from unfade.distributions import Cells
from unfade.rng import Normals


class PinnedNormal(Cells):
    """Gaussian entries of which some are pinned to known values: those have sd 0 and add nothing to log_prob and entropy.

    Parameters
    ----------
    loc, scale : Tensor, (..., *event)
    pinned : bool Tensor, (..., *event)
    """

    def __init__(self, loc: Tensor, scale: Tensor, pinned: Tensor):
        self.pinned = pinned.expand(loc.shape)
        self.sd = scale
        super().__init__(loc, torch.where(self.pinned, 0.0, scale))

    def log_prob(self, value: Tensor) -> Tensor:
        """Compute the log-density of free entries; 0 at the pinned ones."""
        free = Normal(self.loc, torch.where(self.pinned, 1.0, self.sd), validate_args=False)
        return torch.where(self.pinned, 0.0, free.log_prob(value))

    def entropy(self) -> Tensor:
        """Compute the entropy of free entries; 0 at the pinned ones."""
        free = Normal(self.loc, torch.where(self.pinned, 1.0, self.sd), validate_args=False)
        return torch.where(self.pinned, 0.0, free.entropy())


class Corruption(nn.Module, ABC):
    """p(y | x, alpha, beta): alpha is the mask of observed entries, beta holds the unknowns of the corruption.

    In its methods `clean` is a tensor (..., samples, *event) or an `Independent(Normal)` of that shape. `exact`:
    entries observed without error; `std`: the noise level of the others; `learned`: whether it is being learned.
    """

    exact: Tensor
    categorical = 0  # features that are categories' values

    @property
    @abstractmethod
    def std(self) -> Tensor:
        """Noise level; 0 without noise."""

    @property
    @abstractmethod
    def learned(self) -> bool:
        """Whether the noise level is being learned."""

    def level(self, clean: Tensor) -> Tensor:
        """Compute the noise level at clean values: constant, unless it grows with them.

        Parameters
        ----------
        clean : Tensor, (..., *event)

        Returns
        -------
        Tensor, broadcastable to (..., *event)
        """
        return self.std

    def whole_categories(self, mask: Tensor) -> Tensor:
        """Keep a feature in a mask only if the features it belongs to (the values of one category) are in it.

        Parameters
        ----------
        mask : bool Tensor, (..., features)

        Returns
        -------
        bool Tensor, (..., features)
        """
        return mask

    @property
    @abstractmethod
    def by_entry(self) -> bool:
        """Whether each entry has a noise level of its own."""

    @property
    @abstractmethod
    def searched(self) -> Tensor:
        """Entries whose noise level is, or was, learned."""

    @abstractmethod
    def forget_noise(self, of: Tensor | None = None) -> None:
        """Set the noise of entries to 0.

        Parameters
        ----------
        of : bool Tensor or None, (*event)
            Entries; None: all.
        """

    @abstractmethod
    def set_level(self, level: Tensor) -> None:
        """Set the noise level.

        Parameters
        ----------
        level : Tensor, broadcastable to (*event)
        """

    def squares(self, obs: Observations, clean: Tensor) -> Tensor:
        """Compute what `fit_noise` needs of rows whose clean values were drawn; means over rows may be averaged.

        Parameters
        ----------
        obs : Observations
        clean : Tensor, (samples, *event)

        Returns
        -------
        Tensor
        """
        raise NotImplementedError(f"{type(self).__name__} has no noise level to learn from draws.")

    def fit_noise(self, squares: Tensor) -> None:
        """Set the noise level to what draws of clean rows leave of the observations.

        Parameters
        ----------
        squares : Tensor
            Of `squares`, averaged over rows.
        """
        raise NotImplementedError(f"{type(self).__name__} has no noise level to learn from draws.")

    def snapped(self, values: Tensor, feature: int) -> Tensor:
        """Move clean values of one feature to those that it can hold.

        Parameters
        ----------
        values : Tensor
            Of any shape.
        feature : int

        Returns
        -------
        Tensor
            Of the shape of `values`; by default they are left as they are.
        """
        return values

    @abstractmethod
    def corrupt(self, clean: Tensor, observed: Tensor, normals: Normals) -> Observations:
        """Simulate observations of clean data.

        Parameters
        ----------
        clean : Tensor, (..., samples, *event)
        observed : bool Tensor, (..., samples, *event)
            Entries that are observed.
        normals : callable
            Gives standard normal numbers of a shape.

        Returns
        -------
        Observations
        """

    @abstractmethod
    def log_prob(self, obs: Observations, clean: Tensor, unknowns: Tensor | None = None) -> Tensor:
        """Compute log p(y | x), summed over the observed entries of each sample.

        Parameters
        ----------
        obs : Observations
        clean : Tensor, (..., samples, *event)
        unknowns : Tensor or None
            Noise levels in place of the corruption's own, if they are inferred per sample.

        Returns
        -------
        Tensor, (..., samples)
        """

    @abstractmethod
    def marginal_log_prob(self, obs: Observations, clean: Independent) -> Tensor:
        """Compute log of the integral of p(y | x) p(x | z) over x, summed over the observed entries of each sample.

        Parameters
        ----------
        obs : Observations
        clean : Independent, p(x | z)

        Returns
        -------
        Tensor, (..., samples)
        """

    @abstractmethod
    def condition(self, obs: Observations, clean: Independent) -> Independent:
        """Compute p(x | z, y), proportional to p(x | z) p(y | x).

        Parameters
        ----------
        obs : Observations
        clean : Independent, p(x | z)

        Returns
        -------
        Independent
        """

    @abstractmethod
    def pin(self, obs: Observations, clean: Independent) -> Independent:
        """Set the entries of `clean` that were observed without noise to their observed values.

        Parameters
        ----------
        obs : Observations
        clean : Independent

        Returns
        -------
        Independent
        """


class GaussianNoise(Corruption):
    """Missing entries, and Gaussian noise on the observed ones: y = x + std * eps.

    Parameters
    ----------
    std : float or Tensor, (*event)
        Noise level; entries of level 0 are observed exactly. If it is learned, the level that learning starts from.
    learn : bool or bool Tensor, (*event)
        Whether the level is learned; a tensor: in which entries.
    exact : bool Tensor or None, (*event)
        Entries without noise, whatever `std` is.

    Examples
    --------
    >>> noise = GaussianNoise(0.5)
    >>> y = Observations(torch.tensor([[2.0, 0.0]]), torch.tensor([[True, False]]))
    >>> clean = Independent(Normal(torch.zeros(1, 2), torch.full((1, 2), 0.5)), 1)
    >>> noise.condition(y, clean).mean
    tensor([[1., 0.]])
    """

    def __init__(self, std: Tensor | float = 0.0, learn: bool | Tensor = False, exact: Tensor | None = None):
        super().__init__()
        std = torch.as_tensor(std, dtype=torch.float32)
        none = std < 1e-15  # smaller ones would vanish when squared in single precision
        self.register_buffer("exact", none if exact is None else none | exact)
        self.pins = bool(self.exact.any())
        # A level shared by all samples must learn ten times faster than the networks; Adam's steps are of
        # one size in each parameter, so the parameter is the logarithm in tens.
        log_std = torch.where(none, 1.0, std).log() / 10
        some = isinstance(learn, Tensor)
        self.log_std_tens = nn.Parameter(log_std, requires_grad=some or bool(learn))
        self.register_buffer("known", ~learn if isinstance(learn, Tensor) else None, persistent=False)
        self.known: Tensor | None

    @property
    def learned(self) -> bool:
        """Whether the noise level is being learned."""
        return self.log_std_tens.requires_grad

    @property
    def std(self) -> Tensor:
        """Noise level; 0 without noise."""
        log_std = self.log_std_tens
        some = log_std if self.known is None else torch.where(self.known, log_std.detach(), log_std)
        return torch.where(self.exact, 0.0, (10 * some).exp())

    @property
    def by_entry(self) -> bool:
        """Whether each entry has a noise level of its own."""
        return self.log_std_tens.numel() > 1

    @property
    def searched(self) -> Tensor:
        """Entries whose noise level is, or was, learned."""
        return ~self.exact if self.known is None else ~self.exact & ~self.known

    def forget_noise(self, of: Tensor | None = None) -> None:
        """Set the noise of all entries, or of some, to 0."""
        self.exact = self.exact | (torch.ones_like(self.exact) if of is None else of)
        self.pins = bool(self.exact.any())

    @torch.no_grad()
    def set_level(self, level: Tensor) -> None:
        """Set the noise level of entries that are not exact."""
        self.log_std_tens.copy_(torch.where(self.exact, self.log_std_tens, level.clamp(min=1e-15).log() / 10))

    def squares(self, obs: Observations, clean: Tensor) -> Tensor:
        """Sum (y - x)^2 over observed entries, and count these, per row; of each entry if it has a level of its own."""
        squares = torch.where(obs.observed, (obs.values - clean).square(), 0.0)
        both = torch.stack([squares, obs.observed.to(squares.dtype)]).mean(1)
        return both if self.by_entry else both.sum(-1, keepdim=True)

    def fit_noise(self, squares: Tensor) -> None:
        """Set the level to the root of the mean square; where nothing was observed it stays."""
        total, count = squares
        level = (total / count.clamp(min=1e-12)).sqrt()
        self.set_level(torch.where(count > 0, level, self.std).reshape(self.log_std_tens.shape))

    def keep_below(self, std: float) -> None:
        """Lower the noise level to `std` if it is higher.

        Parameters
        ----------
        std : float
        """
        with torch.no_grad():
            self.log_std_tens.clamp_(max=log(std) / 10)

    def corrupt(self, clean: Tensor, observed: Tensor, normals: Normals) -> Observations:
        """Simulate y = x + std * eps at the observed entries."""
        noisy = clean + self.level(clean) * normals(*clean.shape)
        return Observations(torch.where(observed, noisy, 0.0), observed)

    def log_prob(self, obs: Observations, clean: Tensor, unknowns: Tensor | None = None) -> Tensor:
        """Sum log N(y; x, std^2) over the observed entries; 0 for those without noise, where x = y."""
        std = self.level(clean) if unknowns is None else unknowns
        cells = Normal(clean, torch.where(self.exact, 1.0, std), validate_args=False).log_prob(obs.values)
        return _total(torch.where(obs.observed & ~self.exact, cells, 0.0), obs)

    def marginal_log_prob(self, obs: Observations, clean: Independent) -> Tensor:
        """Sum log N(y; mean, scale^2 + std^2) over the observed entries: variances add."""
        base = clean.base_dist
        variance = base.scale.square() + self.level(base.loc).square()
        cells = (obs.values - base.loc).square() / variance + variance.log() + log(2 * pi)
        return -0.5 * _total(torch.where(obs.observed, cells, 0.0), obs)

    def condition(self, obs: Observations, clean: Independent) -> Independent:
        """Add precisions at the observed entries; pin those without noise to their values."""
        base = clean.base_dist
        variance, noise = base.scale.square(), torch.where(self.exact, 1.0, self.level(base.loc)).square()
        gain = torch.where(obs.observed, variance / (variance + noise), 0.0)
        loc = base.loc + gain * (obs.values - base.loc)
        scale = base.scale * torch.where(obs.observed, noise / (variance + noise), 1.0).sqrt()
        cells = Cells(loc, scale)
        return self.pin(obs, Independent(cells, clean.reinterpreted_batch_ndims, validate_args=False))

    def pin(self, obs: Observations, clean: Independent) -> Independent:
        """Set observed entries without noise to their values."""
        if not self.pins:
            return clean
        base, pinned = clean.base_dist, obs.observed & self.exact
        cells = PinnedNormal(torch.where(pinned, obs.values, base.loc), base.scale, pinned)
        return Independent(cells, clean.reinterpreted_batch_ndims, validate_args=False)


def _total(cells: Tensor, obs: Observations) -> Tensor:
    """Sum over the entries of each sample."""
    return cells.flatten(-len(obs.event_shape)).sum(-1)
