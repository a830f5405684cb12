"""Expressions over columns, such as ``wgt / (hgt / 100) ** 2`` and ``moved == 1``: parsed by a whitelist, never executed.

Values are arrays of codes (see `columns`), NaN if missing. A comparison with a missing value is NaN, not known; `and`,
`or` and `not` follow Kleene's logic.
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unfade.data.columns import TEMPORAL, Column, code_of
from unfade.errors import InvalidData

Values = Mapping[str, np.ndarray]
_LONGEST, _MOST_PARTS = 2000, 300
_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: np.divide,
    ast.FloorDiv: np.floor_divide, ast.Mod: np.mod, ast.Pow: np.power,
}  # fmt: skip
_COMPARISONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": np.abs, "exp": np.exp, "log": np.log, "log2": np.log2, "log10": np.log10, "sqrt": np.sqrt, "round": np.round,
    "floor": np.floor, "ceil": np.ceil, "min": lambda *each: np.minimum.reduce(np.broadcast_arrays(*each)),
    "max": lambda *each: np.maximum.reduce(np.broadcast_arrays(*each)),
}  # fmt: skip
_INVERSES: dict[str, Callable[[Any], Any]] = {
    "exp": np.log, "log": np.exp, "log2": np.exp2, "log10": lambda t: np.power(10.0, t), "sqrt": np.square,
}  # fmt: skip
_PARTS = (
    ast.Expression, ast.Constant, ast.Name, ast.Load, ast.UnaryOp, ast.USub, ast.UAdd, ast.Not, ast.BinOp, ast.BoolOp,
    ast.And, ast.Or, ast.Compare, ast.In, ast.NotIn, ast.Call, ast.Tuple, ast.List, *_ARITHMETIC, *_COMPARISONS,
)  # fmt: skip


@dataclass(frozen=True)
class Expression:
    """An expression that was parsed.

    text: as the user wrote it; names: the columns in it, in the order of their first occurrence; tree: its syntax.
    """

    text: str
    names: tuple[str, ...]
    tree: ast.expr = field(repr=False, compare=False)

    @classmethod
    def parse(cls, text: Any, of: str) -> "Expression":
        """Parse a text; raise InvalidData if it holds anything but arithmetic, comparisons, functions and columns.

        Names of columns that are no words stand in backticks.

        >>> Expression.parse("`body weight` / height ** 2", "derived").names
        ('body weight', 'height')
        """
        if not isinstance(text, str) or not 0 < len(text.strip()) <= _LONGEST:
            raise InvalidData(f"{of}: expected an expression such as 'a + b' or 'a == 1', got {str(text)[:40]!r}.")
        quoted = dict.fromkeys(re.findall(r"`([^`]+)`", text))
        words = {name: f"_quoted_{i}" for i, name in enumerate(quoted)}
        plain = re.sub(r"`([^`]+)`", lambda found: words[found[1]], text)
        try:
            tree = ast.parse(plain.strip(), mode="eval").body
            parts = list(ast.walk(tree))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise InvalidData(f"{of}: {text!r} is no expression. Write arithmetic, comparisons, and, or, not.") from None
        back = {word: name for name, word in words.items()}
        called = {id(part.func) for part in parts if isinstance(part, ast.Call)}
        lists = {id(right) for part in parts if isinstance(part, ast.Compare) for right in _lists(part, text, of)}
        if any(isinstance(part, (ast.Tuple, ast.List)) and id(part) not in lists for part in parts):
            raise InvalidData(f"{of}: {text!r} holds several values. Lists of values stand after `in`: a in (1, 2).")
        for part in parts:
            _check(part, text, of, called)
            if isinstance(part, ast.Name):
                part.id = back.get(part.id, part.id)
        if len(parts) > _MOST_PARTS:
            raise InvalidData(f"{of}: {text[:40]!r}... is too long for an expression.")
        names = sorted(
            (part for part in parts if isinstance(part, ast.Name) and id(part) not in called),
            key=lambda part: (part.lineno, part.col_offset),
        )
        return cls(text, tuple(dict.fromkeys(part.id for part in names)), _Signs().visit(tree))

    def bind(self, columns: Mapping[str, Column | None], of: str) -> "Expression":
        """Replace texts and categories by the codes of the columns they are compared with.

        columns: by name; None: a column of an array.
        """
        for name in self.names:
            if name not in columns:
                raise InvalidData(f"{of} names {name!r} in {self.text!r}, which is no column: {list(columns)[:10]}.")
            column = columns[name]
            if column is not None and column.kind == "passthrough":
                raise InvalidData(f"{of} names {name!r}, which is a passthrough column. Give its kind, or leave it out.")
        return Expression(self.text, self.names, _Binder(columns, self.text, of).visit(_copy(self.tree)))

    def evaluate(self, values: Values) -> np.ndarray:
        """Compute the values; of conditions 1 where true, 0 where false; NaN where they are not known."""
        with np.errstate(all="ignore"):
            found = np.asarray(_value(self.tree, values), dtype=float)
        return np.where(np.isfinite(found), found, np.nan)

    def solve(self, name: str, target: np.ndarray, values: Values) -> np.ndarray:
        """Compute the values of one column for which the expression equals a target; NaN where there is no formula."""
        with np.errstate(all="ignore"):
            found = np.asarray(_solved(self.tree, name, np.asarray(target, dtype=float), values), dtype=float)
        return np.where(np.isfinite(found), found, np.nan)

    def constants(self) -> list[float]:
        """List the numbers in a bound expression."""
        return sorted({_number(part) for part in ast.walk(self.tree) if isinstance(part, ast.Constant)})


def _copy(tree: ast.expr) -> Any:
    return ast.fix_missing_locations(_copied(tree))


def _number(node: ast.Constant) -> float:
    """Return the number that a constant is."""
    assert isinstance(node.value, (int, float))
    return float(node.value)


def _copied(node: Any) -> Any:
    """Copy a tree of syntax."""
    if isinstance(node, list):
        return [_copied(each) for each in node]
    if not isinstance(node, ast.AST):
        return node
    made = type(node)(**{name: _copied(value) for name, value in ast.iter_fields(node)})
    return ast.copy_location(made, node)


def _lists(node: ast.Compare, text: str, of: str) -> list[ast.expr]:
    """Return the lists of values of a comparison by `in`."""
    found = [right for op, right in zip(node.ops, node.comparators, strict=True) if isinstance(op, (ast.In, ast.NotIn))]
    if any(not isinstance(right, (ast.Tuple, ast.List)) or not right.elts for right in found):
        raise InvalidData(f"{of}: {text!r} needs values in brackets after `in`: a in (1, 2).")
    return found


def _check(part: ast.AST, text: str, of: str, called: set[int]) -> None:
    """Refuse parts that are not in the whitelist."""
    good = isinstance(part, _PARTS)
    if isinstance(part, ast.Call):
        name = part.func.id if isinstance(part.func, ast.Name) else None
        many = len(part.args) > 1 if name in ("min", "max") else len(part.args) == 1
        good = name in _FUNCTIONS and not part.keywords and many
        if not good:
            raise InvalidData(f"{of}: functions in an expression are {', '.join(_FUNCTIONS)}, got {text!r}.")
    if isinstance(part, ast.Constant):
        good = isinstance(part.value, (bool, int, float, str)) and not isinstance(part.value, complex)
        if isinstance(part.value, int):
            good = good and abs(part.value) < 10**300
    if not good:
        raise InvalidData(
            f"{of}: {text!r} holds {type(part).__name__}. Write arithmetic, comparisons, and, or, not, in, functions "
            f"({', '.join(_FUNCTIONS)}) and names of columns."
        )


_BOOLEANS = {"1": 1.0, "1.0": 1.0, "true": 1.0, "yes": 1.0, "0": 0.0, "0.0": 0.0, "false": 0.0, "no": 0.0}


class _Signs(ast.NodeTransformer):
    """Replaces the negative of a number by a negative number."""

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        """Replace -5, which is an operation on 5."""
        self.generic_visit(node)
        number = isinstance(node.operand, ast.Constant) and isinstance(node.operand.value, (int, float))
        if not (number and isinstance(node.op, ast.USub)) or isinstance(node.operand.value, bool):  # type: ignore[attr-defined]
            return node
        return ast.copy_location(ast.Constant(-node.operand.value), node)  # type: ignore[attr-defined]


class _Binder(ast.NodeTransformer):
    """Replaces constants by codes; refuses text and categories anywhere but in comparisons."""

    def __init__(self, columns: Mapping[str, Column | None], text: str, of: str):
        self.columns, self.text, self.of = columns, text, of

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """Replace the constants of a comparison by codes of the column in it."""
        sides = [node.left, *node.comparators]
        named = [column for side in sides if isinstance(side, ast.Name) and (column := self.columns[side.id]) is not None]
        coded = [column for column in named if column.categories or column.kind in ("boolean", *TEMPORAL)]
        if not coded:
            self.generic_visit(node)
            return node
        if len(named) > 1 and any(column.categories != named[0].categories for column in named):
            raise InvalidData(f"{self.of}: {self.text!r} compares columns of different categories.")
        unordered = coded[0].kind == "category" and any(isinstance(op, tuple(_ORDERED)) for op in node.ops)
        if unordered:
            raise InvalidData(f"{self.of}: {self.text!r} compares categories by size. Use == or in, or kind 'ordinal'.")
        node.left, *node.comparators = [self._coded(side, coded[0]) for side in sides]
        return node

    def _coded(self, side: ast.expr, column: Column) -> ast.expr:
        if isinstance(side, (ast.Tuple, ast.List)):
            side.elts = [self._coded(each, column) for each in side.elts]
            return side
        if isinstance(side, ast.Name):
            return side
        if not isinstance(side, ast.Constant):
            raise InvalidData(f"{self.of}: {self.text!r} compares {column.name!r} with more than a value.")
        return ast.copy_location(ast.Constant(self._code(side.value, column)), side)

    def _code(self, value: Any, column: Column) -> float:
        if column.categories:
            for code, each in enumerate(column.categories):
                if each == value or str(each) == str(value):
                    return float(code)
            held = ", ".join(map(repr, column.categories[:10]))
            raise InvalidData(f"{self.of}: {value!r} is no value of {column.name!r}. Its values are {held}.")
        if column.kind == "boolean":
            if str(value).lower() not in _BOOLEANS:
                raise InvalidData(f"{self.of}: {value!r} is no value of {column.name!r}, which is True or False.")
            return _BOOLEANS[str(value).lower()]
        if isinstance(value, str) and column.text is None:
            try:
                return float(np.datetime64(value, "us").astype(np.int64))
            except ValueError:
                raise InvalidData(f"{self.of}: {value!r} is no date such as 2024-12-31.") from None
        return code_of(value, column)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """Convert a number to floating point; refuse a text."""
        if isinstance(node.value, str):
            raise InvalidData(f"{self.of}: {node.value!r} in {self.text!r} is compared with no column of text.")
        return ast.copy_location(ast.Constant(_number(node)), node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Refuse categories and dates in arithmetic."""
        column = self.columns[node.id]
        if column is not None and (column.categories or column.kind in ("date", "time")):
            raise InvalidData(f"{self.of}: {node.id!r} in {self.text!r} holds no numbers, so it can only be compared.")
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Replace constants in the arguments, not in the name of the function."""
        node.args = [self.visit(each) for each in node.args]
        return node


_ORDERED = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def _value(node: ast.expr, values: Values) -> Any:
    """Compute a bound expression."""
    if isinstance(node, ast.Constant):
        return np.float64(_number(node))
    if isinstance(node, ast.Name):
        return values[node.id]
    if isinstance(node, ast.BinOp):
        return _ARITHMETIC[type(node.op)](_value(node.left, values), _value(node.right, values))
    if isinstance(node, ast.UnaryOp):
        found = _value(node.operand, values)
        return _not(found) if isinstance(node.op, ast.Not) else -found if isinstance(node.op, ast.USub) else found
    if isinstance(node, ast.BoolOp):
        parts = np.broadcast_arrays(*(_truth(_value(each, values)) for each in node.values))
        return _every(parts) if isinstance(node.op, ast.And) else _not(_every([_not(part) for part in parts]))
    if isinstance(node, ast.Call):
        assert isinstance(node.func, ast.Name)
        return _FUNCTIONS[node.func.id](*(_value(each, values) for each in node.args))
    assert isinstance(node, ast.Compare)
    found, left = [], node.left
    for op, right in zip(node.ops, node.comparators, strict=True):
        found.append(_compared(op, _value(left, values), right, values))
        left = right
    return _every(np.broadcast_arrays(*found))


def _compared(op: ast.cmpop, left: Any, right: ast.expr, values: Values) -> Any:
    if isinstance(op, (ast.In, ast.NotIn)):
        assert isinstance(right, (ast.Tuple, ast.List))
        same = np.any([left == _value(each, values) for each in right.elts], axis=0).astype(float)
        return np.where(np.isnan(left), np.nan, 1 - same if isinstance(op, ast.NotIn) else same)
    other = _value(right, values)
    return np.where(np.isnan(left) | np.isnan(other), np.nan, _COMPARISONS[type(op)](left, other).astype(float))


def _truth(value: Any) -> Any:
    return np.where(np.isnan(value), np.nan, (np.asarray(value) != 0).astype(float))


def _not(value: Any) -> Any:
    return 1 - _truth(value)


def _every(parts: Sequence[Any]) -> Any:
    """Combine by Kleene's `and`: false if one part is, else not known if one part is not."""
    stacked = np.stack(parts)
    return np.where((stacked == 0).any(0), 0.0, np.where(np.isnan(stacked).any(0), np.nan, 1.0))


def _solved(node: ast.expr, name: str, target: Any, values: Values) -> Any:
    """Compute the inverse of an expression in which a name occurs once; NaN if that is not so, or there is no inverse."""
    if isinstance(node, ast.Name) and node.id == name:
        return target
    inside = sum(isinstance(part, ast.Name) and part.id == name for part in ast.walk(node))
    if inside != 1:
        return np.full_like(target, np.nan)
    if isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.Not):
        return _solved(node.operand, name, -target if isinstance(node.op, ast.USub) else target, values)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _INVERSES:
        return _solved(node.args[0], name, _INVERSES[node.func.id](target), values)
    if not isinstance(node, ast.BinOp):
        return np.full_like(target, np.nan)
    on_left = any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(node.left))
    other = _value(node.right if on_left else node.left, values)
    return _solved(node.left if on_left else node.right, name, _inverse(node.op, target, other, on_left), values)


def _inverse(op: ast.operator, target: Any, other: Any, on_left: bool) -> Any:
    """Compute the inverse of one operation; on_left: whether what is looked for stands to the left of it."""
    if isinstance(op, ast.Add):
        return target - other
    if isinstance(op, ast.Sub):
        return target + other if on_left else other - target
    if isinstance(op, ast.Mult):
        return target / other
    if isinstance(op, ast.Div):
        return target * other if on_left else other / target
    if isinstance(op, ast.Pow):
        return np.power(target, 1 / other) if on_left else np.log(target) / np.log(other)
    return np.full_like(target, np.nan)
