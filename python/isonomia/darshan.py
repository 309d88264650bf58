"""I/O profiles from Darshan logs, for the simulator's ``io_profile``.

A profile is a table of phases, ``start_s,op,request_bytes,requests``, that every process of a job goes through alike. A log
is cut into bursts: times without I/O of at least ``gap_s`` divide them, and each burst becomes a phase for its reads, its
writes and its metadata operations. What all processes did is spread over them evenly; bytes are kept within rounding.

Reads and writes are those of the extended trace (DXT) if the log has one, and else the totals of each file, from its first
to its last access. Calls through MPI-IO and HDF5 arrive at POSIX and are counted there; STDIO is counted beside it. What is
lost: which process did what, and the order within a burst.
"""

from __future__ import annotations

import csv as csv_module
import math
import os
from collections.abc import Iterable
from typing import Any, NamedTuple, Optional, TypedDict

from ._native import Error
from .sources import Path

#: The columns of a profile.
COLUMNS = ("start_s", "op", "request_bytes", "requests")
#: Times beyond this are no times: a hundred years.
TIME_S_MAX = 100 * 366 * 86_400.0

_METADATA = {
    "POSIX": ("OPENS", "STATS", "FSYNCS", "FDSYNCS", "RENAME_SOURCES"),
    "STDIO": ("OPENS", "FLUSHES"),
}


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
    bytes: int
    count: int


def profile(log: Path, csv: Optional[Path] = None, *, gap_s: float = 1.0) -> list[Phase]:
    """The I/O profile of a Darshan log; also written to the file ``csv`` if there is one.

    Needs the package ``darshan``. Raises :class:`isonomia.Error` with the file and the counter if the log cannot be used.
    """
    if not gap_s > 0:
        raise Error(f"gap_s: {gap_s} (allowed: a number greater than 0, in seconds)")
    with _open(log) as report:
        phases = _phases(_accesses(report, os.fspath(log)), _processes(report, log), gap_s)
    if not phases:
        raise Error(f"{os.fspath(log)}: no read, write or metadata operation of POSIX or STDIO in it")
    if csv is not None:
        with open(csv, "w", newline="", encoding="utf-8") as file:
            writer = csv_module.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(phases)
    return phases


def job(log: Path, csv: Path, *, name: str = "job", gap_s: float = 1.0) -> dict[str, Any]:
    """A ``[[job]]`` of a scenario that does what the log says, with the profile in the file ``csv``."""
    profile(log, csv, gap_s=gap_s)
    with _open(log) as report:
        return {"name": name, "processes": _processes(report, log), "io_profile": os.path.abspath(csv)}


def _open(log: Path) -> Any:
    import darshan

    file = os.fspath(log)
    try:
        with open(file, "rb"):
            pass
        return darshan.DarshanReport(file, read_all=False)
    except OSError as error:
        raise Error(f"cannot open {file}: {error.strerror}") from None
    except Exception as error:
        raise Error(f"{file}: is no log of Darshan that can be read ({error})") from None


def _processes(report: Any, log: Path) -> int:
    processes = int(report.metadata["job"]["nprocs"])
    if processes < 1:
        raise Error(f"{os.fspath(log)}: nprocs: {processes} (allowed: 1 or more)")
    return processes


def _accesses(report: Any, file: str) -> list[_Access]:
    found: list[_Access] = []
    has_trace = "DXT_POSIX" in report.modules
    if has_trace:
        found += _trace(report, file)
    for module in ("POSIX", "STDIO"):
        if module in report.modules:
            data = () if module == "POSIX" and has_trace else ("read", "write")
            found += _totals(report, file, module, data)
    return found


def _trace(report: Any, file: str) -> Iterable[_Access]:
    _read(file, "DXT_POSIX", lambda: report.mod_read_all_dxt_records("DXT_POSIX", dtype="pandas"))
    for record in report.records["DXT_POSIX"]._records:
        for op in ("read", "write"):
            segments = record[f"{op}_segments"]
            columns = (segments[name].tolist() for name in ("start_time", "end_time", "length"))
            for start_s, end_s, length in zip(*columns):
                field = f"DXT_POSIX.{op}_segments"
                start_s, end_s = _time(file, field, start_s), _time(file, field, end_s)
                yield _Access(start_s, max(start_s, end_s), op, _amount(file, field, length), 1)


def _totals(report: Any, file: str, module: str, data: tuple[str, ...]) -> Iterable[_Access]:
    _read(file, module, lambda: report.mod_read_all_records(module))
    frames = report.records[module].to_df()
    counters, times = frames["counters"].to_dict("records"), frames["fcounters"].to_dict("records")
    for counter, time in zip(counters, times):
        for op in data:
            word = "READ" if op == "read" else "WRITE"
            written = "READ" if op == "read" else "WRITTEN"
            count = _amount(file, f"{module}_{word}S", counter[f"{module}_{word}S"])
            if count:
                volume = _amount(file, f"{module}_BYTES_{written}", counter[f"{module}_BYTES_{written}"])
                yield _Access(*_span(file, time, f"{module}_F_{word}"), op, volume, count)
        operations = [f"{module}_{name}" for name in _METADATA[module] if f"{module}_{name}" in counter]
        # Darshan writes -1 where it does not count.
        count = sum(max(0, int(counter[name])) for name in operations)
        if count:
            start_s, _ = _span(file, time, f"{module}_F_OPEN")
            yield _Access(start_s, start_s, "metadata", 0, count)


def _span(file: str, time: dict[str, float], name: str) -> tuple[float, float]:
    start_s = _time(file, f"{name}_START_TIMESTAMP", time[f"{name}_START_TIMESTAMP"])
    return start_s, max(start_s, _time(file, f"{name}_END_TIMESTAMP", time[f"{name}_END_TIMESTAMP"]))


def _read(file: str, module: str, read: Any) -> None:
    try:
        read()
    except Exception as error:
        raise Error(f"{file}: {module}: cannot be read ({error})") from None


def _time(file: str, field: str, value: float) -> float:
    if not 0 <= value <= TIME_S_MAX:
        raise Error(f"{file}: {field}: {value} is no time (allowed: 0 to a hundred years, in seconds)")
    return float(value)


def _amount(file: str, field: str, value: int) -> int:
    if value < 0:
        raise Error(f"{file}: {field}: {value} (allowed: 0 or more)")
    return int(value)


def _phases(accesses: list[_Access], processes: int, gap_s: float) -> list[Phase]:
    phases: list[Phase] = []
    for burst in _bursts(sorted(accesses), gap_s):
        rows = []
        for op in ("metadata", "read", "write"):
            own = [access for access in burst if access.op == op]
            volume, count = sum(access.bytes for access in own), sum(access.count for access in own)
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


def _bursts(accesses: list[_Access], gap_s: float) -> Iterable[list[_Access]]:
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
