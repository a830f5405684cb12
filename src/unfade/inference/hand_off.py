"""Hand-off of draws to other tools: long tables for R's mice, Stata and SPSS, and data sets for xarray and ArviZ."""

from dataclasses import replace
from typing import Any

import numpy as np

from unfade.data.columns import Column
from unfade.data.containers import Container
from unfade.errors import InvalidData

FORMS = {  # names of the columns with the number of the data set (0: as it was given) and of the row
    "unfade": ("draw", "row"),
    "mice": (".imp", ".id"),
    "stata": ("mi_m", "mi_id"),
    "spss": ("Imputation_", "id_"),
}


def check_form(form: str, names: Any = ()) -> None:
    """Refuse a form of long tables that is not known, or whose names the data have."""
    if form not in FORMS:
        raise InvalidData(f"A long table has the form {', '.join(FORMS)}, got {form!r}.")
    if taken := sorted(set(FORMS[form]) & set(names)):
        raise InvalidData(
            f"The form {form!r} needs the names {', '.join(FORMS[form])}, the data have {taken}. Rename them."
        )


def long_frame(values: np.ndarray, container: Container, given: np.ndarray | None, form: str) -> Any:
    """Make a long table: completed data sets one below another, after columns with their number and that of the row.

    For all forms but "unfade", the data as they were given come first, as number 0, and rows are counted from 1.
    """
    check_form(form, container.names or ())
    frame, given = as_frame(container, values, given)
    tables = [frame.wrap(each) for each in values]
    if form != "unfade":
        tables.insert(0, as_given(frame, given))
    names, first = FORMS[form], 0 if form == "unfade" else 1
    return _stacked([_numbered(each, names, number, first) for number, each in enumerate(tables)])


def filled_cells(values: np.ndarray, container: Container, given: np.ndarray | None) -> Any:
    """Find the cells that were filled or cleaned, in a frame of booleans: what `where` is in R's mice."""
    frame, known = as_frame(container, values, given)
    with np.errstate(invalid="ignore"):
        changed = (~np.isnan(values) & (values != known)).any(0)
    there = frame.present() if frame.template is not None else None
    if there is not None:
        changed &= ~(there & np.isnan(known))  # categories that the fit did not see stay
    return _like(frame, {name: changed[:, i] for i, name in enumerate(frame.names or ())})


def as_frame(container: Container, values: np.ndarray, given: np.ndarray | None) -> tuple[Container, np.ndarray]:
    """Return a container of frames, arrays as pyarrow tables with columns x0, x1, ...; and the data as given."""
    if given is None:
        raise InvalidData("These draws do not know the data they were drawn for. Take them from Recoverer.sample.")
    if container.columns is not None:
        return replace(container, home=None), given
    if values.ndim != 3:
        raise InvalidData("Long tables are for tables, which images are not. Use to_xarray, or the array `values`.")
    import pyarrow as pa

    names = [f"x{i}" for i in range(values.shape[-1])]
    template = pa.table([pa.array(column, mask=np.isnan(column)) for column in given.T.astype(float)], names=names)
    return Container(tuple(Column(name, "continuous") for name in names), template, container.dtype), given


def as_given(container: Container, given: np.ndarray) -> Any:
    """Return the frame that was given, values that stand for missing ones as missing."""
    there = container.present()
    return container.template if there is None or there.all() else container.hide(~there)


def dataset(values: np.ndarray, container: Container) -> Any:
    """Make an xarray Dataset with dimensions chain, draw, row: a variable per column, categories as their codes."""
    try:
        import xarray
    except ImportError:
        raise InvalidData("to_xarray needs the package xarray: pip install 'unfade[xarray]'.") from None
    if container.columns is None:
        inner = [f"dim_{i}" for i in range(values.ndim - 2)]
        return xarray.Dataset({"x": (("chain", "draw", "row", *inner), values[None])})
    variables = {}
    for i, column in enumerate(container.columns):
        if column.kind != "passthrough":
            facts = {"kind": column.kind} | ({"categories": list(map(str, column.categories))} if column.categories else {})
            variables[column.name] = (("chain", "draw", "row"), values[None, ..., i], facts)
    return xarray.Dataset(variables)


def _numbered(frame: Any, names: tuple[str, str], number: int, first: int) -> Any:
    """Put columns with the number of the data set and of the row before those of a frame."""
    rows = np.arange(first, first + len(frame))
    which = np.full(len(frame), number)
    if hasattr(frame, "iloc"):
        made = frame.reset_index(drop=True)
        made.insert(0, names[1], rows)
        made.insert(0, names[0], which)
        return made
    if hasattr(frame, "column_names"):
        import pyarrow as pa

        return frame.add_column(0, names[1], pa.array(rows)).add_column(0, names[0], pa.array(which))
    import polars as pl

    return frame.insert_column(0, pl.Series(names[1], rows)).insert_column(0, pl.Series(names[0], which))


def _stacked(frames: list[Any]) -> Any:
    """Put frames one below another."""
    if hasattr(frames[0], "iloc"):
        import pandas as pd

        return pd.concat(frames, ignore_index=True)
    if hasattr(frames[0], "column_names"):
        import pyarrow as pa

        return pa.concat_tables(frames, promote_options="permissive")
    import polars as pl

    return pl.concat(frames, how="vertical_relaxed")


def _like(container: Container, columns: dict[str, np.ndarray]) -> Any:
    """Make a frame of the library of another."""
    import narwhals as nw

    backend = nw.from_native(container.template, eager_only=True).implementation
    return nw.from_dict(columns, backend=backend).to_native()
