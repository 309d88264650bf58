"""The claims of published papers, computed anew."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path as File
from typing import Any, Optional, TypedDict, cast

from . import _native
from .sources import Path


class Paper(TypedDict):
    """A paper whose claims can be computed anew."""

    title: str
    items: list[str]


class Claim(TypedDict):
    """What a paper says, and what came of it; ``tests`` has the numbers behind the verdict."""

    item: str
    claim: str
    paper: str
    ours: str
    verdict: str
    rule: str
    why: str
    is_ours: bool
    tests: list[dict[str, Any]]


class Reproduction(TypedDict):
    """The answer of :func:`reproduce`: the claims, the JSON of each item with its data, and the files."""

    claims: list[Claim]
    items: dict[str, dict[str, Any]]
    files: list[str]


def papers() -> dict[str, Paper]:
    """Every paper that can be reproduced, by the word that :func:`reproduce` takes."""
    return {name: {"title": title, "items": items} for name, title, items in _native.papers()}


def reproduce(paper: str, item: Optional[str] = None, *, out: Path, quick: bool = False) -> Reproduction:
    """Computes an item of a paper, the items of one study, or all, and writes data and claims into ``out``.

    As ``isonomia reproduce`` does, on all cores; ``quick`` takes fewer points and seeds. Each item has ``columns`` and
    ``rows``, the raw data, and the ``configuration`` with its seeds; :mod:`isonomia.figures` draws them. Ctrl-C raises
    KeyboardInterrupt; what was finished is there.
    """
    directory = os.fspath(out)
    os.makedirs(directory, exist_ok=True)
    provenance = {
        "version": _native.VERSION,
        "host": platform.node(),
        "kernel": platform.release(),
        "cores": os.cpu_count(),
    }
    files: list[str] = json.loads(_native.reproduce(paper, item, directory, quick, json.dumps(provenance)))
    found = [json.loads(File(file).read_text(encoding="utf-8")) for file in files if file.endswith(".json")]
    items = {each["item"]: each for each in found}
    claims = [cast(Claim, {"item": name, **claim}) for name, each in items.items() for claim in each["claims"]]
    return {"claims": claims, "items": items, "files": files}
