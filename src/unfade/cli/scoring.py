"""`unfade score`: imputers ranked on the real holes of a table."""

from typing import Any

from unfade.diagnostics.imputation_score import IMPUTERS, ImputationScore, score
from unfade.errors import InvalidData
from unfade.estimator import Recoverer


def ranking(
    table: Any, names: list[str], parameters: dict[str, Any], draws: int, max_rows: int, max_columns: int
) -> list[tuple[str, ImputationScore]]:
    """Score imputers by name, and sort them, the best first."""
    if unknown := [name for name in names if name not in ("unfade", *IMPUTERS)]:
        raise InvalidData(f"--imputer takes unfade, {', '.join(IMPUTERS)}, got {unknown[0]!r}.")
    seed, own = parameters.pop("random_state"), {"unfade": Recoverer(**parameters, verbose=0)}
    kinds, missing = parameters["kinds"], parameters["missing"]
    found = [
        (name, score({**IMPUTERS, **own}[name], table, draws, seed=seed, max_rows=max_rows, max_columns=max_columns,
                     kinds=kinds, missing=missing))
        for name in dict.fromkeys(names)
    ]  # fmt: skip
    return sorted(found, key=lambda each: each[1].score)
