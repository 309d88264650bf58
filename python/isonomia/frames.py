"""Results as pandas frames, for those who have pandas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Optional

from ._native import Error

if TYPE_CHECKING:
    import pandas

#: The lists that results have, the one that is meant if none is named first.
TABLES = ("apps", "packs", "jobs", "applications", "targets", "slices", "claims")


def frame(result: Mapping[str, Any], table: Optional[str] = None) -> pandas.DataFrame:
    """One of a result's tables as a frame: ``apps``, ``packs``, ``jobs``, ``applications``, ``targets``,
    ``slices``, or ``claims``.

    The first of these that is there if none is named. Of a sweep, every row begins with the settings of its point.
    Lists within rows stay out, but for the jobs of a pack; nested values get names such as ``latency_p99_ns``.
    """
    import pandas

    if "points" in result:
        rows = [
            {**dict(point["settings"]), **row} for point in result["points"] for row in _rows(point["outcome"], table)
        ]
    else:
        rows = _rows(result, table)
    return pandas.DataFrame(rows)


def _rows(result: Mapping[str, Any], table: Optional[str]) -> list[dict[str, Any]]:
    there = [name for name in TABLES if isinstance(result.get(name), list)]
    name = table if table is not None else next(iter(there), "")
    if name not in there:
        raise Error(f"table {name!r} is not in this result (allowed: {', '.join(there) or 'none'})")
    return [_flat(row) for row in result[name]]


def _flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{prefix}{key}_"))
        elif key == "jobs" and isinstance(value, list):
            flat[prefix + key] = " ".join(map(str, value))
        elif not isinstance(value, list):
            flat[prefix + key] = value
    return flat
