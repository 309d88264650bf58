"""Jobs from Darshan logs on one server, under five policies.

    pip install .
    python3 examples/traces/compare.py [LOG ...]

Logs are those of Darshan (needs ``pip install darshan``) or what ``darshan-parser LOG > LOG.txt`` prints of them, as the two
beside this program. Every log is a job that does its reads, writes and metadata operations at the same times with as
many processes. Shown are how long its requests take, on average and the slowest of a hundred, and how many of its I/O phases end later
than under fair sharing.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import isonomia
from isonomia import darshan

HERE = Path(__file__).parent
POLICIES = ["fifo", "job-fair", "size-fair", "coflow", "fair-finish"]


def scenario(logs: list[Path], directory: Path) -> dict[str, object]:
    """One disk, and a job for each log, with its profile in a file of ``directory``."""
    jobs = []
    for log in logs:
        name = log.name.split(".")[0]
        jobs.append({**darshan.job(log, directory / f"{name}.csv", name=name, gap_s=0.5), "iterations": 1})
    return {
        "duration": "10min",
        "policy": "fifo",
        "slowdown": False,
        "fair_clock": True,
        "target": [{"name": "disk", "bandwidth": "1GiB/s", "per_op": "5us"}],
        "job": jobs,
    }


def compare(logs: list[Path]) -> dict[str, dict[str, tuple[float, float, int, int]]]:
    """By policy and job: mean and 99th percentile of the time of a request in ms, late phases, phases."""
    with tempfile.TemporaryDirectory() as directory:
        system = scenario(logs, Path(directory))
        found = {}
        for policy in POLICIES:
            outcome: Any = isonomia.simulate({**system, "policy": policy})
            found[policy] = {
                job["job"]: (
                    job["latency"]["mean_ns"] / 1e6,
                    job["latency"]["p99_ns"] / 1e6,
                    job["late_phases"] or 0,
                    job["io_phases"] or 0,
                )
                for job in outcome["jobs"]
            }
    return found


def main() -> None:
    """The command."""
    logs = [Path(log) for log in sys.argv[1:]] or sorted(HERE.glob("*.darshan.txt"))
    for policy, jobs in compare(logs).items():
        for job, (mean_ms, p99_ms, late, phases) in jobs.items():
            print(f"{policy:<12} {job:<12} {mean_ms:7.1f} ms   p99 {p99_ms:7.1f} ms   late {late} of {phases}")


if __name__ == "__main__":
    main()
