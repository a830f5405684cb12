"""Former public names: they work for one release, with a FutureWarning; in model files they always work."""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar, cast

from unfade.errors import notice

PARAMETERS = {
    "refine": "n_candidates",
    "members": "n_members",
    "limits": "detection_limits",
    "recalibrate": "calibrate",
}
ATTRIBUTES = {**PARAMETERS, "widths_": "calibration_scale_", "space_": "encoder_", "surprises": "outliers"}
KINDS = {"number": "continuous", "whole": "integer", "ordered": "ordinal", "excluded": "passthrough"}
SETTINGS = {"sharpness": "energy_weight"}
OPTIONS = {name.replace("_", "-"): new.replace("_", "-") for name, new in PARAMETERS.items()} | {"limit": "detection-limit"}

F = TypeVar("F", bound=Callable[..., Any])


def renamed(names: Mapping[str, str], old: str, what: str) -> str:
    """Return the present name for a former one, with a FutureWarning; any other name unchanged."""
    if old not in names:
        return old
    notice(f"The {what} {old!r} is now called {names[old]!r}.", FutureWarning)
    return names[old]


def takes_old_names(function: F) -> F:
    """Let a function take parameters by their former names as well."""

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **{renamed(PARAMETERS, name, "parameter"): value for name, value in kwargs.items()})

    return cast(F, called)


def present_values(parameters: dict[str, Any]) -> dict[str, Any]:
    """Replace former names of kinds and settings in parameters."""
    kinds, settings = parameters.get("kinds"), parameters.get("settings")
    if isinstance(kinds, dict):
        parameters["kinds"] = {column: renamed(KINDS, kind, "kind") for column, kind in kinds.items()}
    if isinstance(settings, dict):
        parameters["settings"] = {renamed(SETTINGS, name, "setting"): value for name, value in settings.items()}
    return parameters


def format_2(meta: dict[str, Any]) -> dict[str, Any]:
    """Translate the metadata of a model file of format 1 to format 2; values of wrong types are left for the check."""
    meta = dict(meta)
    parameters, columns = meta.get("parameters"), meta.get("columns")
    if isinstance(parameters, dict):
        parameters = {PARAMETERS.get(name, name): value for name, value in parameters.items()}
        for name, words in (("kinds", KINDS), ("settings", SETTINGS)):
            if isinstance(parameters.get(name), dict):
                parameters[name] = _worded(parameters[name], words, values=name == "kinds")
        meta["parameters"] = parameters
    if isinstance(columns, list):
        meta["columns"] = [_column(column) if isinstance(column, dict) else column for column in columns]
    return meta


def format_3(meta: dict[str, Any]) -> dict[str, Any]:
    """Translate the metadata of a model file of format 2 to format 3: "tae" was the name of the default method."""
    parameters = meta.get("parameters")
    if isinstance(parameters, dict) and parameters.get("method") == "tae":
        return {**meta, "parameters": {**parameters, "method": "auto"}}
    return meta


def _worded(given: dict[str, Any], words: Mapping[str, str], values: bool) -> dict[str, Any]:
    """Replace former names among the values, or the keys, of a dictionary."""
    if values:
        return {name: words.get(value, value) if isinstance(value, str) else value for name, value in given.items()}
    return {words.get(name, name): value for name, value in given.items()}


def _column(column: dict[str, Any]) -> dict[str, Any]:
    """Replace former names in the description of a column."""
    column = {"censored" if name == "limits" else name: value for name, value in column.items()}
    return column | _worded({"kind": column["kind"]}, KINDS, values=True) if "kind" in column else column
