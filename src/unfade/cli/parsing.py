"""Parsing of options (noise, kinds, missing values, bounds, detection limits) to parameters of `Recoverer`."""

from collections.abc import Sequence
from typing import Any

from unfade.errors import InvalidData


def fit_parameters(
    seed: int,
    method: str = "auto",
    noise: str = "none",
    kinds: list[str] | None = None,
    bounds: list[str] | None = None,
    detection_limits: list[str] | None = None,
    scaling: str = "auto",
    network: str = "auto",
    n_members: int | None = None,
    max_steps: int | None = None,
    max_seconds: float | None = None,
    missing: list[str] | None = None,
    applicable: list[str] | None = None,
    derived: list[str] | None = None,
    sums: list[str] | None = None,
    order: list[str] | None = None,
    time: str | None = None,
    panel: list[str] | None = None,
) -> dict[str, Any]:
    """Convert options of the fit to parameters of Recoverer."""
    return {
        "method": method,
        "noise": parse_noise(noise),
        "kinds": dict(_pair(text, "=", "--kind", "zip=category") for text in kinds or ()) or None,
        "missing": parse_missing(missing or ()),
        "bounds": parse_bounds(bounds or ()),
        "detection_limits": dict(map(parse_detection_limit, detection_limits or ())) or None,
        "applicable": dict(_named(text, "--applicable", "'age_moved=moved == 1'") for text in applicable or ()) or None,
        "derived": dict(_named(text, "--derived", "'bmi=wgt / hgt ** 2'") for text in derived or ()) or None,
        "sums": dict(map(parse_sum, sums or ())) or None,
        "order": list(order or ()) or None,
        "time": time,
        "panel": tuple(panel or ()) or None,
        "scaling": None if scaling == "none" else scaling,
        "network": network,
        "n_members": n_members or "auto",
        "max_steps": max_steps,
        "max_seconds": max_seconds,
        "random_state": seed,
    }


def parse_noise(text: str) -> Any:
    """Parse a noise option: none, learn..., infer, one number, one per column with commas, or by name."""
    from unfade.data.options import percent

    if text.lower() == "none":
        return None
    if text in ("learn", "learn-by-column", "learn-shared", "learn-by-value", "infer"):
        return text
    if percent(text) is not None:
        return text
    try:
        if "=" in text:
            pairs = [_pair(part, "=", "--noise", "temp=0.5,hum=learn,ph=5%") for part in text.split(",")]
            return {n: level if level == "learn" or percent(level) is not None else float(level) for n, level in pairs}
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidData(
            f"--noise takes none, learn, learn-shared, learn-by-value, numbers such as 0.3 or 0.1,0.2, or levels by column "
            f"such as temp=0.5,hum=learn,ph=5%, got {text!r}."
        ) from None
    return numbers[0] if len(numbers) == 1 else numbers


def parse_sum(text: str) -> tuple[str, list[str]]:
    """Parse a total and its parts."""
    total, parts = _named(text, "--sum", "total=a+b+c")
    return total, [part.strip().strip("`") for part in parts.split("+")]


def _named(text: str, option: str, example: str) -> tuple[str, str]:
    """Split an option at its first =, as expressions hold more."""
    name, found, value = text.partition("=")
    if not (found and name.strip() and value.strip()) or value.startswith("="):
        raise InvalidData(f"{option} takes {example}, got {text!r}.")
    return name.strip(), value.strip()


def _pair(text: str, mark: str, option: str, example: str) -> tuple[str, str]:
    name, found, value = text.rpartition(mark)
    if not (found and name and value):
        raise InvalidData(f"{option} takes {example}, got {text!r}.")
    return name.strip(), value.strip()


def parse_bounds(texts: Sequence[str]) -> Any:
    """Parse bounds: pairs by column, one pair for all, or None."""
    found: dict[str, tuple[float | None, float | None]] = {}
    for text in texts:
        name, named, pair = text.rpartition("=")
        try:
            if named and not name.strip():
                raise ValueError
            low, high = (float(end) if end else None for end in pair.split(":"))
        except ValueError:
            raise InvalidData(
                f"--bounds takes age=0:120, age=0: (one end alone) or 0:1 (for all columns), got {text!r}."
            ) from None
        found[name.strip()] = low, high
    if "" in found and len(found) > 1:
        raise InvalidData(f"--bounds is for all columns, or for some by name, got {list(texts)}.")
    return found.get("", found or None)


def parse_missing(texts: Sequence[str]) -> dict[str, list[str]] | None:
    """Parse values that stand for missing ones, by column; those of all columns under the name ""."""
    found: dict[str, list[str]] = {}
    for text in texts:
        name, _, mark = text.rpartition("=")
        found.setdefault(name.strip(), []).append(mark.strip())
    return found or None


def parse_detection_limit(text: str) -> tuple[str, tuple[str, float]]:
    """Parse a detection limit: column, side and level."""
    sign = "<" if "<" in text else ">"
    name, level = _pair(text, sign, "--detection-limit", "lead<0.5 or height>200")
    try:
        return name, (sign, float(level))
    except ValueError:
        raise InvalidData(f"--detection-limit takes lead<0.5 or height>200, got {text!r}.") from None
