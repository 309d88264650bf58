"""I/O profiles from Darshan logs, for the simulator's ``io_profile``.

A profile is a table of phases, ``start_s,op,request_bytes,requests``, that every process of a job goes through alike. A
log is cut into bursts: times without I/O of at least ``gap_s`` divide them, and each burst becomes a phase for its
reads, its writes and its metadata operations. What all processes did is spread over them evenly; bytes are kept within
rounding.

Reads and writes are those of the extended trace (DXT) if the log has one, and else the totals of each file, from its
first to its last access. Calls through MPI-IO and HDF5 arrive at POSIX and are counted there; STDIO is counted beside
it. What is lost: which process did what, and the order within a burst.

A log is a file of Darshan's, which takes its package ``darshan`` to read, or what ``darshan-parser`` printed of one,
which takes nothing.
"""

from __future__ import annotations

import csv as csv_module
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Optional, TypedDict, TypeVar

from ._native import Error
from .sources import Path

#: The columns of a profile.
COLUMNS = ("start_s", "op", "request_bytes", "requests")
#: How what ``darshan-parser`` prints begins.
PRINTED = "# darshan log version:"
#: Times beyond this are no times: a hundred years.
TIME_S_MAX = 100 * 366 * 86_400.0
#: Counts beyond this are no counts: Darshan's have 63 bits.
AMOUNT_MAX = 2**63 - 1

_N = TypeVar("_N", int, float)

_METADATA = {
    "POSIX": ("OPENS", "STATS", "FSYNCS", "FDSYNCS", "RENAME_SOURCES"),
    "STDIO": ("OPENS", "FLUSHES"),
}


#: Of each layer, the counters that are read of every file; others may be missing.
_READ_OF = (
    *("READS", "WRITES", "BYTES_READ", "BYTES_WRITTEN"),
    *(f"F_{op}_{at}_TIMESTAMP" for op in ("OPEN", "READ", "WRITE") for at in ("START", "END")),
)


class Phase(TypedDict):
    """A row of a profile."""

    start_s: float
    op: str
    request_bytes: int
    requests: int


class _Access(NamedTuple):
    start_s: float
    end_s: float
    op: str
    volume: int
    requests: int


def profile(log: Path, csv: Optional[Path] = None, *, gap_s: float = 1.0) -> list[Phase]:
    """The I/O profile of a Darshan log, or of what ``darshan-parser`` printed; also written to ``csv`` if that is given.

    Needs the package ``darshan`` for the former. Raises :class:`isonomia.Error` with the file and the counter if the
    log cannot be used.
    """
    return _profile(_read(os.fspath(log)), os.fspath(log), csv, gap_s)


def job(log: Path, csv: Path, *, name: str = "job", gap_s: float = 1.0) -> dict[str, Any]:
    """A ``[[job]]`` of a scenario that does what the log says, with the profile in the file ``csv``."""
    content = _read(os.fspath(log))
    _profile(content, os.fspath(log), csv, gap_s)
    return {"name": name, "processes": content["processes"], "io_profile": os.path.abspath(csv)}


def _profile(content: dict[str, Any], file: str, csv: Optional[Path], gap_s: float) -> list[Phase]:
    if not gap_s > 0:
        raise Error(f"gap_s: {gap_s} (allowed: a number greater than 0, in seconds)")
    phases = _phases(list(_accesses(content, file)), content["processes"], gap_s)
    if not phases:
        raise Error(f"{file}: no read, write or metadata operation of POSIX or STDIO in it")
    if csv is not None:
        with open(csv, "w", newline="", encoding="utf-8") as out:
            writer = csv_module.DictWriter(out, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(phases)
    return phases


def _read(file: str) -> dict[str, Any]:
    """What :mod:`isonomia.darshan_log` finds, which may not survive it."""
    try:
        with open(file, "rb") as log:
            is_printed = log.read(len(PRINTED)) == PRINTED.encode()
    except OSError as error:
        raise Error(f"cannot open {file}: {error.strerror}") from None
    if is_printed:
        return _read_printed(file)
    # Where a broken log makes the library remove a file of no sensible name, it finds none.
    with tempfile.TemporaryDirectory() as nowhere:
        reader = subprocess.run(
            [sys.executable, "-m", "isonomia.darshan_log", os.path.abspath(file)],
            capture_output=True,
            text=True,
            errors="replace",
            cwd=nowhere,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
        )
    if reader.returncode != 0:
        said = reader.stderr.strip().splitlines() or [f"its library ended with {reader.returncode}"]
        raise Error(f"{file}: is no log of Darshan that can be read ({said[0]})")
    content: dict[str, Any] = json.loads(reader.stdout.splitlines()[-1])
    if content["processes"] < 1:
        raise Error(f"{file}: nprocs: {content['processes']} (allowed: 1 or more)")
    return content


def _read_printed(file: str) -> dict[str, Any]:
    """The same of what ``darshan-parser`` printed: a line for each counter of each file."""
    processes = 0
    records: dict[tuple[str, str, str], dict[str, float]] = {}
    with open(file, encoding="utf-8", errors="replace") as log:
        for number, line in enumerate(log, 1):
            if line.startswith("# nprocs:"):
                processes = _number(file, number, line.split(":", 1)[1], int)
            if line.startswith("#") or not line.strip():
                continue
            fields = line.split("\t")
            if len(fields) < 5:
                raise Error(f"{file}:{number}: {len(fields)} fields (allowed: 5 or more, parted by tabs)")
            module, rank, record, counter = fields[:4]
            if module in _METADATA:
                value = _number(file, number, fields[4], float)
                records.setdefault((module, rank, record), {})[counter] = value
    if processes < 1:
        raise Error(f"{file}: nprocs: {processes} (allowed: 1 or more)")
    found: dict[str, list[dict[str, float]]] = {}
    for (module, _, record), counters in records.items():
        missing = [name for name in _READ_OF if f"{module}_{name}" not in counters]
        if missing:
            raise Error(f"{file}: {module}_{missing[0]}: is missing for the file {record}")
        found.setdefault(module, []).append(counters)
    return {"processes": processes, "trace": None, "records": found}


def _number(file: str, line: int, text: str, kind: Callable[[str], _N]) -> _N:
    try:
        return kind(text)
    except ValueError:
        raise Error(f"{file}:{line}: {text.strip()!r} is no number") from None


def _accesses(content: dict[str, Any], file: str) -> Iterator[_Access]:
    trace = content["trace"]
    for op, segments in (trace or {}).items():
        field = f"DXT_POSIX.{op}_segments"
        for start_s, end_s, length in segments:
            start_s, end_s = _time(file, field, start_s), _time(file, field, end_s)
            yield _Access(start_s, max(start_s, end_s), op, _amount(file, field, length), 1)
    for module, records in content["records"].items():
        ops = () if module == "POSIX" and trace is not None else ("read", "write")
        for record in records:
            yield from _totals(record, file, module, ops)


def _totals(record: dict[str, Any], file: str, module: str, ops: tuple[str, ...]) -> Iterator[_Access]:
    for op in ops:
        counter, volume = f"{module}_{op.upper()}S", f"{module}_BYTES_{'READ' if op == 'read' else 'WRITTEN'}"
        count = _amount(file, counter, record[counter])
        if count:
            span = _span(file, record, f"{module}_F_{op.upper()}")
            yield _Access(*span, op, _amount(file, volume, record[volume]), count)
    # Darshan writes -1 where it does not count.
    count = sum(max(0, int(record.get(f"{module}_{name}", 0))) for name in _METADATA[module])
    if count:
        start_s, _ = _span(file, record, f"{module}_F_OPEN")
        yield _Access(start_s, start_s, "metadata", 0, count)


def _span(file: str, record: dict[str, Any], name: str) -> tuple[float, float]:
    start, end = f"{name}_START_TIMESTAMP", f"{name}_END_TIMESTAMP"
    start_s = _time(file, start, record[start])
    return start_s, max(start_s, _time(file, end, record[end]))


def _time(file: str, field: str, value: float) -> float:
    if not 0 <= value <= TIME_S_MAX:
        raise Error(f"{file}: {field}: {value} is no time (allowed: 0 to a hundred years, in seconds)")
    return float(value)


def _amount(file: str, field: str, value: int) -> int:
    if not 0 <= value <= AMOUNT_MAX:
        raise Error(f"{file}: {field}: {value} (allowed: 0 to {AMOUNT_MAX})")
    return int(value)


def _phases(accesses: list[_Access], processes: int, gap_s: float) -> list[Phase]:
    phases: list[Phase] = []
    for burst in _bursts(sorted(accesses), gap_s):
        rows = []
        for op in ("metadata", "read", "write"):
            own = [access for access in burst if access.op == op]
            volume, count = sum(access.volume for access in own), sum(access.requests for access in own)
            requests = round(count / processes)
            if op != "metadata" and volume:
                requests = max(1, requests)
            elif op != "metadata" or requests == 0:
                continue
            size = 0 if op == "metadata" else max(1, round(volume / (requests * processes)))
            start_s = round(own[0].start_s, 6)
            rows.append(Phase(start_s=start_s, op=op, request_bytes=size, requests=requests))
        phases += sorted(rows, key=lambda row: row["start_s"])
    return phases


def _bursts(accesses: list[_Access], gap_s: float) -> Iterator[list[_Access]]:
    burst: list[_Access] = []
    end_s = -math.inf
    for access in accesses:
        if burst and access.start_s >= end_s + gap_s:
            yield burst
            burst = []
        burst.append(access)
        end_s = max(end_s, access.end_s)
    if burst:
        yield burst
