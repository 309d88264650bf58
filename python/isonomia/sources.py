"""What functions take as input: a file, or the same as data."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, Optional, Union

from . import _native

Path = Union[str, "os.PathLike[str]"]
#: A TOML file, or its content as a mapping.
Document = Union[Path, Mapping[str, Any]]
#: A CSV file, or its rows as mappings, or a pandas frame.
Table = Union[Path, Iterable[Mapping[str, Any]], Any]


def document(source: Document, name: str) -> tuple[str, Optional[str]]:
    """The file's name, and the text unless it is in the file. Data are complained of as lines of ``<name>``."""
    if not isinstance(source, Mapping):
        return os.fspath(source), None
    try:
        text = json.dumps(_without_none(source), default=_plain)
    except (TypeError, ValueError) as error:
        raise _native.Error(f"<{name}>: {error}") from None
    return f"<{name}>", _native.toml_of_json(text)


def table(source: Table, name: str) -> tuple[str, Optional[str]]:
    """The same for tables; rows that lack a key have no value there."""
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source), None
    if hasattr(source, "to_csv"):
        return f"<{name}>", source.to_csv(index=False)
    rows = list(source)
    text = io.StringIO()
    columns = list(dict.fromkeys(key for row in rows for key in row))
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return f"<{name}>", text.getvalue()


def _without_none(value: Any) -> Any:
    """TOML has no null: what is None is not there."""
    if isinstance(value, Mapping):
        return {key: _without_none(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, (list, tuple)):
        return [_without_none(inner) for inner in value]
    return value


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays, and paths."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no TOML (allowed: numbers, text, booleans, lists, mappings)")
