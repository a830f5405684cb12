"""Databases: the result of an SQL query through Arrow."""

import re
from typing import Any

from unfade.errors import InvalidData, InvalidFile


def read_query(address: str, query: str | None) -> Any:
    """Read the result of a query on a PostgreSQL server as a pyarrow table, by ADBC.

    Parameters
    ----------
    address : str
        ``postgresql://user@host/name``; a password is better left to ``PGPASSWORD`` or ``~/.pgpass``.
    query : str
        ``SELECT * FROM patients ORDER BY id``; without an order, rows come as the server likes.

    Returns
    -------
    pyarrow Table
    """
    if not query or not query.strip():
        raise InvalidData("Expected an SQL query (--query 'SELECT * FROM patients ORDER BY id'), got none.")
    try:
        from adbc_driver_postgresql import dbapi
    except ImportError:
        raise InvalidFile("PostgreSQL needs adbc-driver-postgresql: pip install 'unfade[postgresql]'.") from None
    try:
        with dbapi.connect(address) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            table = cursor.fetch_arrow_table()
    except Exception as error:  # the driver raises whatever the server answers
        said = " ".join(str(error).split())
        raise InvalidFile(f"Cannot read from {without_password(address)}: {said}.") from None
    if not len(table):
        raise InvalidFile("The result of the query has no rows. Expected at least one.")
    return _plain(table)


def without_password(address: str) -> str:
    """Return the address of a database without its password."""
    named = re.sub(r"(password=)[^&\s]*", r"\1***", address)
    return re.sub(r"(://[^:/?#\s]*:)\S*(?=@)", r"\1***", named)


def _plain(table: Any) -> Any:
    """Convert numbers of arbitrary precision, which arrive as text, to floating point."""
    import pyarrow as pa

    for place, field in enumerate(table.schema):
        kind = getattr(field.type, "storage_type", field.type)
        numeric = getattr(field.type, "type_name", "") == "numeric" or b"numeric" in (field.metadata or {}).values()
        column = table.column(place).cast(kind) if kind != field.type else table.column(place)
        table = table.set_column(place, field.name, column.cast(pa.float64()) if numeric else column)
    return table
