"""The way between the user's data and what a model sees: flat, scaled, repeated values and categories made explicit."""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from unfade.data.observations import AT_ONCE, Observations, Scaling, by_columns, interval, variance
from unfade.distributions import between

FAR = 1e3  # stands for infinity in model space, where an infinite number would spoil gradients
_VALUES = 1000  # values of a stepped entry that are told apart


@dataclass(frozen=True)
class FeatureEncoder:
    """Entries of the user's data as features of a model.

    event_shape: of one sample in the user's data; modelled: which entries the model sees, (entries,); the
    others have `fill`: the only value ever seen there, or NaN where none was. Modelled numbers come first, one
    feature each; then the categories, one feature for each of their values, of which there are `n_categories`. mean_sd:
    sd of a modelled entry in model space, on average; repeated: entries whose values occur again and again, and those
    values; limited: entries with detection limits, which take any value, though cells without a limit are known to the
    distance between repeated values; unit: the distance between values that an entry can hold: 1 for whole numbers, 0
    where any number will do; bounds: the least and the largest value, (2, entries); reach: one observed range beyond what
    was observed, (2, entries), where draws end. Skewed positive numbers without noise are modelled by their logarithms,
    and go a tenth further than what was seen.

    >>> from unfade.data.observations import as_observations
    >>> space = FeatureEncoder.fit(as_observations([[1.0, 5.0], [3.0, 5.0]]), "variance")
    >>> space.modelled.tolist(), space.fill.tolist()
    ([True, False], [nan, 5.0])
    """

    event_shape: tuple[int, ...]
    scaling: Scaling
    modelled: Tensor
    fill: Tensor
    mean_sd: float
    repeated: dict[int, Tensor]
    n_categories: dict[int, int]
    limited: tuple[int, ...]
    unit: Tensor
    bounds: Tensor
    reach: Tensor

    @classmethod
    def fit(
        cls, obs: Observations, kind: str | None, exact: Tensor | None = None, n_categories: dict[int, int] | None = None,
        unit: Tensor | None = None, bounds: Tensor | None = None, images: bool = False, logged: Tensor | None = None,
    ) -> "FeatureEncoder":  # fmt: skip
        """From observed entries only; `kind` is one of SCALINGS, or None. exact: entries whose values carry no noise.

        logged: entries to model by their logarithms in any case; images: every entry is modelled, for the others say
        something about those that were never seen.
        """
        flat = _flat(obs)
        low, span = by_columns(interval, flat.values, flat.observed)
        fill = torch.where(flat.observed.any(0) & (span == 0), low, torch.nan)
        modelled = torch.ones_like(span, dtype=torch.bool) if images else span > 0
        n_categories = {entry: count for entry, count in (n_categories or {}).items() if modelled[entry]}
        numbers = [e for e in modelled.nonzero().flatten().tolist() if e not in n_categories]
        limited = () if flat.low is None else tuple(e for e in numbers if flat[:, e].within().any())
        found = {e: occurring_values(flat[:, e], e in limited) for e in numbers if exact is not None and exact[e]}
        repeated = {entry: values for entry, values in found.items() if values is not None}
        if unit is None:
            unit = torch.zeros(len(modelled), dtype=torch.float64)
        free = torch.tensor([e in found and e not in repeated for e in range(len(modelled))]) & (unit == 0)
        scaling = Scaling.fit(flat, kind, free & skewed(flat) if logged is None else (free & skewed(flat)) | logged)
        _, sd = by_columns(variance, flat.values, flat.observed)
        straight = [e for e in numbers if not scaling.logged[e] and span[e] > 0]
        mean_sd = float((sd / scaling.scale)[straight].mean()) if straight else 1.0
        if bounds is None:
            bounds = unlimited(len(modelled))
        reach = torch.stack([low, low + span])  # what was seen, and a tenth further on a logarithmic scale
        reach = torch.where(
            scaling.logged, reach * ((low + span) / low) ** torch.tensor([[-0.1], [0.1]], dtype=torch.float64), bounds
        )
        bounds = torch.stack([torch.maximum(bounds[0], reach[0]), torch.minimum(bounds[1], reach[1])])
        return cls(
            tuple(obs.event_shape),
            scaling,
            modelled,
            fill,
            mean_sd,
            repeated,
            n_categories,
            limited,
            unit,
            bounds,
            _reach(flat, obs),
        )

    @property
    def numbers(self) -> Tensor:
        """The entries that are features one by one."""
        chosen = self.modelled.clone()
        chosen[list(self.n_categories)] = False
        return chosen.nonzero().flatten()

    @property
    def groups(self) -> list[tuple[int, int]]:
        """The first feature of each category and the one after its last."""
        offsets = torch.tensor([len(self.numbers), *self.n_categories.values()]).cumsum(0).tolist()
        return list(pairwise(offsets))

    @property
    def features(self) -> int:
        """How many features the model sees."""
        return len(self.numbers) + sum(self.n_categories.values())

    @property
    def fine(self) -> Tensor:
        """Which features take more than a handful of values, (features,)."""
        coarse = {entry for entry, values in self.repeated.items() if len(values) < 6 and entry not in self.limited}
        numbers = [entry not in coarse for entry in self.numbers.tolist()]
        return torch.tensor(numbers + [False] * (self.features - len(numbers)))

    @property
    def plain(self) -> bool:
        """Whether every feature is a number that is seen exactly, or with noise."""
        return not (self.repeated or self.n_categories)

    @property
    def straight(self) -> bool:
        """Whether the mean of a feature is that of its entry."""
        return self.plain and not bool(self.scaling.logged.any())

    @property
    def scale(self) -> Tensor:
        """The unit of each number, in the user's units."""
        return self.scaling.scale[self.numbers]

    @property
    def ends(self) -> Tensor | None:
        """What means of features are to keep within, in model space, (2, features): infinite where it is nothing.

        Of numbers that are no logarithms and hardly ever repeat, where both ends are known and not far from the data: a
        map to wide bounds would begin far away. None where no feature has such ends.
        """
        ends = torch.tensor([[-torch.inf], [torch.inf]]).repeat(1, self.features)
        numbers = self.numbers
        known = self.scaling[numbers].of(self.bounds[:, numbers]).float()
        plain = torch.tensor([entry not in self.repeated for entry in numbers.tolist()], dtype=torch.bool)
        free = ~self.scaling.logged[numbers] & plain
        near = free & known.isfinite().all(0) & (between(torch.zeros(()), known).abs() <= 1)
        ends[:, : len(numbers)] = torch.where(near, known, ends[:, : len(numbers)])
        return ends if bool(near.any()) else None

    def model_intervals(self) -> dict[int, tuple[Tensor, Tensor]]:
        """For each stepped feature: where one value ends and the next begins, and the values; in model space."""
        place = {entry: feature for feature, entry in enumerate(self.numbers.tolist())}
        points = {e: self.scaling[e].of(values) for e, values in self.repeated.items()}
        return {place[e]: (((z[1:] + z[:-1]) / 2).float(), z.float()) for e, z in points.items()}

    def enter(self, obs: Observations) -> Observations:
        """(samples, features) in model space."""
        flat, height = _flat(obs), max(1, AT_ONCE // max(1, len(self.modelled)))
        parts = [self._enter(flat[i : i + height]) for i in range(0, max(1, len(flat)), height)]
        return Observations(*(torch.cat(tensors) for tensors in zip(*(p.parts() for p in parts), strict=True)))

    def _enter(self, flat: Observations) -> Observations:
        scaled, numbers = self.scaling.apply(Observations(flat.values, flat.observed)), self.numbers
        near = scaled.values[:, numbers].abs() <= FAR  # values further out are as good as missing
        values = [torch.where(near, scaled.values[:, numbers], 0.0)]
        observed = [flat.observed[:, numbers] & near]
        ends = self._ends(flat, values[0])
        for entry, count in self.n_categories.items():
            seen = flat.observed[:, entry, None].expand(-1, count)
            code = flat.values[:, entry].long().clamp(0, count - 1)
            values.append(torch.nn.functional.one_hot(code, count) * seen.float())
            observed.append(seen)
        features = [torch.cat(values, 1), torch.cat(observed, 1)]
        for far, end in zip((-FAR, FAR), ends, strict=False):
            features.append(torch.cat([end, end.new_full((len(end), self.features - len(numbers)), far)], 1))
        return Observations(*features)

    def _ends(self, flat: Observations, values: Tensor) -> list[Tensor]:
        """Low and high ends of what is known of each number; snaps the values of stepped features in place."""
        if not self.repeated:
            return []
        low, high = torch.full_like(values, -FAR), torch.full_like(values, FAR)
        for feature, (edges, points) in self.model_intervals().items():
            which = torch.searchsorted(edges, values[:, feature].contiguous())
            entry = int(self.numbers[feature])
            far = FAR * edges.new_tensor([-1.0, 1.0])
            if entry in self.limited:  # the outermost values are no further known than the others
                far = 2 * points[[0, -1]] - edges[[0, -1]]
            ends = torch.cat([far[:1], edges, far[1:]])
            values[:, feature] = points[which] * flat.observed[:, entry]
            low[:, feature], high[:, feature] = ends[which], ends[which + 1]
        for entry in self.limited:
            feature = int((self.numbers == entry).nonzero())
            for end, given in ((low, flat.low), (high, flat.high)):
                if given is not None:
                    scaled = self.scaling[entry].of(given[:, entry])
                    within = flat[:, entry].within()
                    end[:, feature] = torch.where(within, scaled.clamp(-FAR, FAR).float(), end[:, feature])
        return [low, high]

    def measured(self, obs: Observations) -> Tensor:
        """Features that are not known to lie beyond a detection limit only, (samples, features)."""
        measured = torch.ones(len(obs), self.features, dtype=torch.bool)
        measured[:, : len(self.numbers)] = ~obs.within().flatten(1)[:, self.numbers]
        return measured

    def entries(self, features: Tensor) -> Tensor:
        """A mask of features (samples, features) as one of entries, (samples, *event)."""
        mask = torch.zeros(len(features), len(self.modelled), dtype=torch.bool)
        mask[:, self.numbers] = features[:, : len(self.numbers)]
        for entry, (first, _) in zip(self.n_categories, self.groups, strict=True):
            mask[:, entry] = features[:, first]
        return mask.reshape(-1, *self.event_shape)

    def leave(self, values: Tensor, obs: Observations, exact: Tensor, noisy: bool = False) -> Tensor:
        """Clean values (..., samples, features) in the user's units, (..., samples, *event).

        `obs` are the observations they belong to: where they are exact (one flag a number), or not
        modelled, the observed values come back untouched. noisy: values of entries that are not exact carry noise, which
        no bounds hold for.
        """
        numbers = self.numbers
        full = self.fill.expand(*values.shape[:-1], len(self.fill)).clone()
        full[..., numbers] = self.scaling[numbers].undo(values[..., : len(numbers)])
        full = self._snapped(full)
        for entry, (first, last) in zip(self.n_categories, self.groups, strict=True):
            full[..., entry] = values[..., first:last].argmax(-1).double()
        clean = self._in_units(full.clamp(*self.reach).clamp(*self.bounds))
        full = torch.where(self.kept(exact), clean, full) if noisy else clean
        full = torch.where(self.untouched(obs, exact), _flat(obs).values.double(), full)
        return full.reshape(*values.shape[:-1], *self.event_shape)

    def kept(self, exact: Tensor) -> Tensor:
        """The entries that carry no noise, (entries,). exact: one flag a number."""
        keep = torch.ones_like(self.modelled)
        keep[self.numbers] = exact
        return keep

    def untouched(self, obs: Observations, exact: Tensor) -> Tensor:
        """The entries (samples, entries) that are returned as they were observed."""
        flat = _flat(obs)
        return flat.observed & self.kept(exact) & ~flat.within()

    def possible(self, values: Tensor) -> Tensor:
        """The values (..., entries) nearest to these that entries can hold: repeated values, multiples of their units."""
        return self._in_units(self._snapped(values.clone()))

    def _snapped(self, full: Tensor) -> Tensor:
        """Values (..., entries), those of stepped entries moved to the nearest of their values in place."""
        for entry, known in self.repeated.items():
            if entry not in self.limited:
                edges = (known[1:] + known[:-1]) / 2
                full[..., entry] = known[torch.searchsorted(edges, full[..., entry].contiguous())]
        return full

    def _in_units(self, full: Tensor) -> Tensor:
        return torch.where(self.unit > 0, self.unit * (full / self.unit.clamp(min=1.0)).round(), full)


def unlimited(entries: int) -> Tensor:
    """No least and no largest value, (2, entries)."""
    return torch.tensor([-torch.inf, torch.inf], dtype=torch.float64)[:, None].repeat(1, entries)


def _reach(flat: Observations, obs: Observations) -> Tensor:
    """One observed range beyond what was observed, (2, entries); of images all pixels have one."""
    low, span = (part.double() for part in by_columns(interval, flat.values, flat.observed))
    seen = flat.observed.any(0)
    high = low + span
    if len(obs.event_shape) > 1 and seen.any():
        low, high = low[seen].min().expand(low.shape), high[seen].max().expand(low.shape)
    reach = torch.stack([2 * low - high, 2 * high - low])
    return torch.where(seen, reach, unlimited(len(low)))


def skewed(flat: Observations) -> Tensor:
    """Columns of positive numbers whose logarithms are far less skewed than they are, (entries,).

    >>> normal = torch.linspace(-2, 2, 99)[:, None] * torch.tensor([2.0, 0.1])
    >>> skewed(Observations(normal.exp(), torch.ones(99, 2, dtype=torch.bool)))
    tensor([ True, False])
    """
    positive = ((flat.values > 0) | ~flat.observed).all(0)
    plain, _ = by_columns(_skewness, flat.values, flat.observed)
    logged, _ = by_columns(lambda v, seen: _skewness(v.clamp(min=1e-300).log(), seen), flat.values, flat.observed)
    return positive & (plain > 1) & (logged.abs() < plain / 2)


def _skewness(values: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
    """Mean of the cubed standard scores of each column, and what they were divided by."""
    centre, scale = variance(values, observed)
    scores = torch.where(observed, (values - centre) / torch.where(scale > 0, scale, 1.0), 0.0)
    return (scores**3).sum(0) / observed.sum(0).clamp(min=1), scale


def occurring_values(column: Observations, whatever: bool = False) -> Tensor | None:
    """The values of a column, where they occur again and again: most more than once, or one in a twentieth of the cells.

    Of more than a thousand, those that are most frequent and an even choice among the others. whatever: in any case.

    >>> occurring_values(Observations(torch.tensor([0.0, 0.0, 1.5, 2.5]), torch.ones(4, dtype=torch.bool)))
    tensor([0.0000, 1.5000, 2.5000], dtype=torch.float64)
    """
    values, counts = column.values[column.observed & ~column.within()].double().unique(return_counts=True)
    if len(values) < 2:
        return None
    total, most = counts.sum(), counts.max()
    if not (whatever or (most > 1 and most >= 0.05 * total) or counts[counts > 1].sum() >= 0.5 * total):
        return None
    if len(values) <= _VALUES:
        return values
    frequent = counts >= counts.sort(descending=True).values[_VALUES // 2]
    rest = (~frequent).nonzero().flatten()
    chosen = rest[torch.linspace(0, len(rest) - 1, _VALUES // 2).long()] if len(rest) else rest
    return values[torch.cat([frequent.nonzero().flatten()[:_VALUES], chosen]).sort().values]


def _flat(obs: Observations) -> Observations:
    return Observations(*(part.flatten(1) for part in obs.parts()))
