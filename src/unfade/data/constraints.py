"""Constraints between columns: cells that do not apply, derived columns, sums, order; exact in every draw.

They are applied in one place, where draws of features have become values of columns (`FittedModel`), and once when data
are read: what follows from observed cells alone is no longer missing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from unfade.data.columns import Column
from unfade.data.expressions import Expression
from unfade.errors import InvalidData, notice

_MOST_TRIED = 200  # combinations of values of the columns of a condition
_ROUNDING = 0.02  # by which an observed derived cell may differ from its expression, relative to the column's sd

Applicable = dict[Any, str]
Derived = dict[Any, str]
Sums = dict[Any, Sequence[Any]]
Order = Sequence[str | Sequence[Any]]


def parse_constraints(
    applicable: Any = None, derived: Any = None, sums: Any = None, order: Any = None
) -> tuple[dict[str, Expression], dict[str, Expression], dict[str, tuple[str, ...]], tuple[tuple[str, ...], ...]]:
    """Check the user's constraints, and parse their expressions."""
    for name, given in (("applicable", applicable), ("derived", derived), ("sums", sums)):
        if given is not None and not isinstance(given, Mapping):
            raise InvalidData(f"{name} must be a dictionary by column, got {given!r}.")
    conditions = {_name(column): Expression.parse(text, f"applicable of {column!r}") for column, text in _items(applicable)}
    formulas = {_name(column): Expression.parse(text, f"derived {column!r}") for column, text in _items(derived)}
    totals = {}
    for column, parts in _items(sums):
        if isinstance(parts, str) or not isinstance(parts, Sequence) or len(set(map(_name, parts))) < max(2, len(parts)):
            raise InvalidData(f"sums of {column!r} must list at least two different columns, got {parts!r}.")
        totals[_name(column)] = tuple(map(_name, parts))
    if order is not None and (isinstance(order, str) or not isinstance(order, Sequence)):
        raise InvalidData(f"order must be a list such as ['low <= high'], got {order!r}.")
    return conditions, formulas, totals, tuple(_chain(each) for each in order or ())


def _items(given: Any) -> Any:
    return (given or {}).items()


def _name(column: Any) -> str:
    """Name a column: those of arrays are x0, x1, ..."""
    return f"x{column}" if isinstance(column, (int, np.integer)) and not isinstance(column, bool) else str(column)


def _chain(given: Any) -> tuple[str, ...]:
    parts = [part.strip().strip("`") for part in given.split("<=")] if isinstance(given, str) else given
    good = isinstance(parts, Sequence) and len(parts) > 1 and all(_name(part) for part in parts)
    if not good or any("<" in _name(part) or ">" in _name(part) for part in parts):
        raise InvalidData(f'order takes \'low <= mid <= high\' or ("low", "mid", "high"), got {given!r}.')
    return tuple(map(_name, parts))


@dataclass(frozen=True)
class Constraints:
    """Constraints bound to the columns of a table, in the model's order.

    names: of all columns; applicable: conditions under which a column has a value; derived: formulas of columns, those
    that others need first; sums: parts of each total; order: columns from the least to the largest; values: of each
    column that a condition names, those that could make it true; units: distance between values that a column can hold;
    compared: columns of numbers that a condition names, which those of other columns may make true as well.
    """

    names: tuple[str, ...]
    applicable: dict[str, Expression]
    derived: dict[str, Expression]
    sums: dict[str, tuple[str, ...]]
    order: tuple[tuple[str, ...], ...]
    values: dict[str, tuple[float, ...]]
    units: tuple[float, ...]
    compared: frozenset[str] = frozenset()

    @classmethod
    def bind(
        cls, columns: Sequence[Column] | None, event_shape: Sequence[int], applicable: Any = None, derived: Any = None,
        sums: Any = None, order: Any = None,
    ) -> "Constraints":  # fmt: skip
        """Match the user's constraints with columns; raise InvalidData for what does not fit them."""
        conditions, formulas, totals, chains = parse_constraints(applicable, derived, sums, order)
        given = bool(conditions or formulas or totals or chains)
        if given and len(event_shape) != 1:
            raise InvalidData("applicable, derived, sums and order are for tables, which images are not. Leave them out.")
        names = tuple(c.name for c in columns) if columns else tuple(f"x{i}" for i in range(event_shape[0]) if given)
        known: dict[str, Column | None] = {c.name: c for c in columns} if columns else dict.fromkeys(names)
        _check_names(known, conditions, formulas, totals, chains)
        bound = {name: each.bind(known, f"applicable of {name!r}") for name, each in conditions.items()}
        made = {name: each.bind(known, f"derived {name!r}") for name, each in formulas.items()}
        parents = {name for each in bound.values() for name in each.names}
        values = {name: _possible(name, known[name], bound) for name in parents}
        units = tuple(getattr(known[name], "unit", 0.0) for name in names)
        compared = frozenset(name for name in parents if not getattr(known[name], "discrete", False))
        return cls(names, bound, _sorted(made, totals), totals, chains, values, units, compared)

    def __bool__(self) -> bool:
        return bool(self.applicable or self.derived or self.sums or self.order)

    def named(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """Return views of the columns of values (..., columns) by name."""
        return {name: values[..., i] for i, name in enumerate(self.names)}

    def exact(self, columns: np.ndarray) -> np.ndarray:
        """Return which columns carry no noise, (columns,): those computed from noisy ones carry it too."""
        found = columns.copy()
        for name, formula in self._formulas().items():
            found[self.names.index(name)] &= all(found[self.names.index(each)] for each in formula.names)
        return found

    def closed(self, values: np.ndarray) -> np.ndarray:
        """Find the cells of values (rows, columns), NaN if missing, that are known not to apply."""
        found, named = np.zeros(values.shape, bool), self.named(values)
        for name, condition in self.applicable.items():
            found[:, self.names.index(name)] = np.isnan(named[name]) & (condition.evaluate(named) == 0)
        return found

    def deduce(self, values: np.ndarray, exact: bool = True) -> np.ndarray:
        """Fill cells of values (rows, columns), NaN if missing, that follow from observed ones; in place.

        exact: observed cells carry no noise. Returns the cells that were filled.
        """
        missing = np.isnan(values)
        for _ in range(len(self.derived) + len(self.sums) if exact else 0):
            before = int(np.isnan(values).sum())
            for name, formula in self._formulas().items():
                self._solve(values, name, formula, ~np.isnan(values), only_one=True)
                column = values[..., self.names.index(name)]
                column[np.isnan(column)] = formula.evaluate(self.named(values))[np.isnan(column)]
            if int(np.isnan(values).sum()) == before:
                break
        return missing & ~np.isnan(values)

    def settle(self, values: np.ndarray, fixed: np.ndarray) -> None:
        """Make draws (draws, rows, columns) meet the constraints, in place.

        fixed: cells (rows, columns) that must not change: observed without noise.
        """
        if not self:
            return
        held = np.broadcast_to(fixed, values.shape)
        for name, condition in self.applicable.items():
            self._make_true(values, name, condition, held)
        for total, parts in self.sums.items():
            self._share(values, total, parts, held)
        for chain in self.order:
            _arrange(values, [self.names.index(name) for name in chain], held)
        for name, formula in self.derived.items():
            self._solve(values, name, formula, held)
        self._compute(values, held)
        for name, condition in self.applicable.items():
            i = self.names.index(name)
            values[..., i][(condition.evaluate(self.named(values)) == 0) & ~held[..., i]] = np.nan
        self._compute(values, held)

    def conflicts(self, values: np.ndarray) -> list[str]:
        """Describe where observed cells (rows, columns), NaN if missing, do not meet the constraints."""
        named, said = self.named(values), []
        for name, condition in self.applicable.items():
            if rows := int((~np.isnan(named[name]) & (condition.evaluate(named) == 0)).sum()):
                said.append(f"{name!r} is observed in {rows} rows in which {condition.text!r} is false")
        for name, formula in self._formulas().items():
            away = np.abs(named[name] - formula.evaluate(named))
            scale = max(_ROUNDING * float(np.nanstd(named[name])) if np.isfinite(named[name]).any() else 0.0, 1e-9)
            if rows := int((away > max(scale, self.units[self.names.index(name)])).sum()):
                said.append(f"{name!r} differs from {formula.text!r} in {rows} rows")
        for chain in self.order:
            part = np.stack([named[name] for name in chain], -1)
            highest = np.fmax.accumulate(np.where(np.isnan(part), -np.inf, part), -1)
            if rows := int((part < highest).any(-1).sum()):
                said.append(f"{' <= '.join(chain)} is false in {rows} rows")
        return said

    def explains(self, column: int, other: int) -> bool:
        """Check whether a column is missing at values of another because it does not apply there."""
        condition = self.applicable.get(self.names[column]) if self.names else None
        return condition is not None and self.names[other] in condition.names

    def _formulas(self) -> dict[str, Expression]:
        """Return the formulas of all computed columns."""
        return {**self.derived, **{total: _sum_of(parts) for total, parts in self.sums.items()}}

    def _compute(self, values: np.ndarray, held: np.ndarray) -> None:
        """Compute derived columns and sums, but for cells that are fixed."""
        for name, formula in self._formulas().items():
            i = self.names.index(name)
            found = formula.evaluate(self.named(values))
            if self.units[i]:
                found = self.units[i] * np.round(found / self.units[i])
            values[..., i] = np.where(held[..., i], values[..., i], found)

    def _solve(self, values: np.ndarray, name: str, formula: Expression, known: np.ndarray, only_one: bool = False) -> None:
        """Give a cell of a formula the value that makes it equal to its column, where that is known."""
        place = {each: self.names.index(each) for each in formula.names}
        target, free = values[..., self.names.index(name)], known[..., self.names.index(name)]
        unknown = np.stack([~known[..., place[each]] for each in formula.names], -1)
        count = unknown.sum(-1)
        todo = free & ((count == 1) if only_one else (count > 0))
        for number, each in reversed(list(enumerate(formula.names))):
            here = todo & unknown[..., number]
            if here.any():
                found = formula.solve(each, target, self.named(values))
                found = _without_error(found, self.units[place[each]]) if only_one else found
                good = here & ~np.isnan(found)
                values[..., place[each]] = np.where(good, found, values[..., place[each]])
                todo = todo & ~good

    def _share(self, values: np.ndarray, total: str, parts: Sequence[str], held: np.ndarray) -> None:
        """Let free parts sum to what a fixed total leaves: in proportion if none is negative, else by one shift."""
        index, whole = [self.names.index(part) for part in parts], self.names.index(total)
        part, free = values[..., index], ~held[..., index]
        todo = held[..., whole] & free.any(-1) & ~np.isnan(part).any(-1)
        rest = values[..., whole] - np.where(free, 0.0, part).sum(-1)
        drawn = np.where(free, part, 0.0)
        now, count = drawn.sum(-1), np.maximum(1, free.sum(-1))
        scaled = (drawn >= 0).all(-1) & (now > 0) & (rest >= 0)
        with np.errstate(all="ignore"):
            factor = np.where(scaled, rest / now, 1.0)[..., None]
        new = drawn * factor + np.where(scaled, 0.0, (rest - now) / count)[..., None]
        units = np.array([self.units[i] for i in index])
        new = np.where(units > 0, units * np.round(new / np.where(units > 0, units, 1.0)), new)
        last = np.where(free, np.where(units > 0, new, new + np.nanmax(np.abs(new), initial=0.0) + 1), -np.inf).argmax(-1)
        left = rest - np.where(free, new, 0.0).sum(-1)
        new = new + left[..., None] * (np.arange(len(index)) == last[..., None])
        values[..., index] = np.where(todo[..., None] & free, new, part)

    def _make_true(self, values: np.ndarray, name: str, condition: Expression, held: np.ndarray) -> None:
        """Give free cells of a condition the nearest values by which it is true, where its column is observed."""
        index = [self.names.index(parent) for parent in condition.names]
        wrong = held[..., self.names.index(name)] & (condition.evaluate(self.named(values)) != 1)
        wrong = wrong & (~held[..., index]).any(-1)
        if not wrong.any():
            return
        cells, fixed = values[wrong], held[wrong][:, index]
        best, away = cells[:, index].copy(), np.full(len(cells), np.inf)
        choices = [(np.nan, *self.values[parent], *self._beside(cells, parent, condition)) for parent in condition.names]
        for number, chosen in enumerate(product(*choices)):
            if number >= _MOST_TRIED:
                break
            new = np.stack([np.full(len(cells), each) for each in chosen], 1)  # NaN: as it is
            tried = np.where(fixed | np.isnan(new), cells[:, index], new)
            trial = cells.copy()
            trial[:, index] = tried
            distance = np.abs(np.nan_to_num(tried - cells[:, index])).sum(-1)
            better = (condition.evaluate(self.named(trial)) == 1) & (distance < away)
            best[better], away[better] = tried[better], distance[better]
        cells[:, index] = best
        values[wrong] = cells

    def _beside(self, cells: np.ndarray, parent: str, condition: Expression) -> list[np.ndarray]:
        """List values of a column at, just below and just above those of the condition's other columns, by row."""
        step = self.units[self.names.index(parent)] or 1.0
        names = [name for name in condition.names if {name, parent} <= self.compared and name != parent]
        others = [cells[:, self.names.index(name)] for name in names]
        return [other + change for other in others for change in (0.0, -step, step)]


def no_constraints() -> Constraints:
    """Make constraints that hold for any table."""
    return Constraints((), {}, {}, {}, (), {}, ())


def warn_conflicts(constraints: Constraints, values: np.ndarray) -> None:
    """Warn of observed cells that do not meet the constraints."""
    if constraints and (said := constraints.conflicts(values)):
        notice(f"Observed cells are kept although {'; '.join(said[:5])}. Correct them, or the constraint.")


def _check_names(
    known: Mapping[str, Any], conditions: Mapping[str, Any], formulas: Mapping[str, Any],
    totals: Mapping[str, Sequence[str]], chains: Sequence[Sequence[str]],
) -> None:  # fmt: skip
    """Refuse columns that are not there, that hold no numbers, or that are computed twice."""
    computed = [*formulas, *totals]
    if double := {name for name in computed if computed.count(name) > 1}:
        raise InvalidData(f"{sorted(double)[0]!r} is both a derived column and a sum. Give one of the two.")
    numbers = [(name, "sums", True) for total, parts in totals.items() for name in (total, *parts)]
    numbers += [(name, "order", True) for chain in chains for name in chain] + [
        (name, "derived", True) for name in formulas
    ]
    for name, of, needed in [*numbers, *((name, "applicable", False) for name in conditions)]:
        if name not in known:
            raise InvalidData(f"{of} names {name!r}, which is no column. Columns are {list(known)[:10]}.")
        kind = getattr(known[name], "kind", "continuous")
        if needed and kind in ("boolean", "category", "passthrough") + (
            () if of == "order" else ("ordinal", "date", "time")
        ):
            raise InvalidData(f"{of} names {name!r}, which holds no numbers (its kind is {kind}). Leave it out.")
        if kind == "passthrough":
            raise InvalidData(f"{of} names {name!r}, which is a passthrough column. Give its kind, or leave it out.")
    for name in [part for chain in chains for part in chain] + [part for parts in totals.values() for part in parts]:
        if name in computed:
            raise InvalidData(f"{name!r} is computed from other columns, so it cannot be in a sum or an order as well.")


def _sorted(formulas: dict[str, Expression], totals: Mapping[str, Any]) -> dict[str, Expression]:
    """Put formulas into an order in which each stands after those it needs."""
    done: dict[str, Expression] = {}
    while len(done) < len(formulas):
        ready = [
            name
            for name, each in formulas.items()
            if name not in done and not (set(each.names) & set(formulas)) - set(done)
        ]
        if not ready:
            left = sorted(set(formulas) - set(done))
            raise InvalidData(f"derived columns {left} need each other. Leave one of them out.")
        done |= {name: formulas[name] for name in ready}
    if cross := [name for name, each in formulas.items() if set(each.names) & set(totals)]:
        raise InvalidData(f"derived {cross[0]!r} needs a total of sums. Write out its parts.")
    return done


def _sum_of(parts: Sequence[str]) -> Expression:
    quoted = " + ".join(f"`{part}`" for part in parts)
    return Expression.parse(quoted, "sums")


def _possible(name: str, column: Column | None, conditions: Mapping[str, Expression]) -> tuple[float, ...]:
    """List values of a column that could make a condition true: all of a category, else constants and their neighbours."""
    if column is not None and (column.categories or column.kind == "boolean"):
        return tuple(float(code) for code in range(len(column.categories) or 2))
    held = {value for each in conditions.values() if name in each.names for value in each.constants()}
    step = 1.0 if column is None or not column.unit else column.unit
    return tuple(sorted({value + change for value in held for change in (-step, 0.0, step)}))


def _without_error(values: np.ndarray, unit: float) -> np.ndarray:
    """Round values to the units of a column, or to 12 digits: 80.9 is solved for as 80.90000000000001."""
    if unit:
        return unit * np.round(values / unit)
    with np.errstate(all="ignore"):
        scale = 10.0 ** (11 - np.floor(np.log10(np.abs(values))))
        rounded = np.round(values * scale) / scale
    return np.where(np.isfinite(rounded), rounded, values)


def _arrange(values: np.ndarray, index: Sequence[int], held: np.ndarray) -> None:
    """Put the free cells of a row into order: sorted if all are free, else moved between those that are fixed."""
    part, fixed = values[..., index], held[..., index]
    free = ~fixed.any(-1) & ~np.isnan(part).any(-1)
    low = np.fmax.accumulate(np.where(fixed, part, -np.inf), -1)
    high = np.fmin.accumulate(np.where(fixed, part, np.inf)[..., ::-1], -1)[..., ::-1]
    between = np.where(fixed | np.isnan(part), part, np.minimum(np.maximum(part, low), np.maximum(low, high)))
    risen = np.fmax.accumulate(np.where(np.isnan(between), -np.inf, between), -1)
    moved = np.where(fixed | np.isnan(part), part, risen)
    values[..., index] = np.where(free[..., None], np.sort(part, -1), moved)
