"""Reads a Darshan log and prints what :mod:`isonomia.darshan` needs of it, as JSON.

A program of its own: with a damaged log, Darshan's library may end the process that uses it. Nothing is judged here.
"""

from __future__ import annotations

import json
import sys
from typing import Any

#: The layers whose operations count: what comes through MPI-IO or HDF5 arrives at POSIX.
MODULES = ("POSIX", "STDIO")


def read(file: str) -> dict[str, Any]:
    """The processes of the job, the segments of the extended trace, and the counters of each file."""
    import darshan

    report = darshan.DarshanReport(file, read_all=False)
    found: dict[str, Any] = {"processes": int(report.metadata["job"]["nprocs"]), "trace": None, "records": {}}
    if "DXT_POSIX" in report.modules:
        report.mod_read_all_dxt_records("DXT_POSIX", dtype="pandas")
        records = report.records["DXT_POSIX"]._records
        found["trace"] = {
            op: [row for record in records for row in _rows(record[f"{op}_segments"])] for op in ("read", "write")
        }
    for module in MODULES:
        if module in report.modules:
            report.mod_read_all_records(module)
            frames = report.records[module].to_df()
            counters, times = (frames[name].to_dict("records") for name in ("counters", "fcounters"))
            found["records"][module] = [{**counter, **time} for counter, time in zip(counters, times)]
    return found


def _rows(segments: Any) -> list[tuple[float, float, int]]:
    # Without a segment there are no columns either.
    columns = [segments[name].tolist() for name in ("start_time", "end_time", "length")] if len(segments) else []
    return list(zip(*columns))


if __name__ == "__main__":
    try:
        print(json.dumps(read(sys.argv[1])))
    except Exception as error:
        sys.exit(f"{error}")
