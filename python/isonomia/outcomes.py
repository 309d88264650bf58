"""What simulations give, as types: field by field what ``isonomia sim --json`` prints."""

from __future__ import annotations

from typing import Literal, Optional, TypedDict, Union, final


class Latency(TypedDict):
    """From issue to completion."""

    mean_ns: float
    p50_ns: int
    p95_ns: int
    p99_ns: int
    max_ns: int


class JobOutcome(TypedDict):
    """What a job had at request level, in the measured span but for what says otherwise."""

    job: str
    user: str
    group: str
    nodes: int
    bytes: int
    requests: int
    share: float
    throughput_bytes_per_s: float
    throughput_deviation_bytes_per_s: float
    latency: Latency
    requests_total: int
    elapsed_ns: Optional[int]
    slowdown: Optional[float]
    io_phases: Optional[int]
    late_phases: Optional[int]
    late_ns: Optional[int]


class TargetOutcome(TypedDict):
    """What a target did."""

    target: str
    requests: int
    bytes: int
    utilization: float


class Slice(TypedDict):
    """What a job had in the slice of time that ends at ``time_s``."""

    time_s: float
    job: str
    bytes: int
    service_ns: int


class _RequestOutcome(TypedDict):
    level: Literal["request"]
    ended_ns: int
    interrupted: bool
    decisions: int
    slice_ns: int
    jobs: list[JobOutcome]
    targets: list[TargetOutcome]


@final
class RequestOutcome(_RequestOutcome, total=False):
    """A run at request level; ``slices`` if they were asked for."""

    slices: list[Slice]


class ApplicationOutcome(TypedDict):
    """What an application had at fluid level: means over its runs or I/O phases that ended."""

    application: str
    nodes: int
    runs: int
    phases: int
    io_phase_s: float
    io_slowdown: float
    io_slowdown_max: float
    io_s: float
    run_s: float
    wait_s: float
    #: Phases that ended here and in the fair clock; of these, those that ended later here.
    judged_phases: int
    late_phases: int
    io_over_fair: float
    io_over_fair_max: float


class GiftDay(TypedDict):
    """A day of GIFT's accounts."""

    day: int
    issued_target_s: float
    outstanding_node_hours_max: float
    paid_node_hours: float


class GiftOutcome(TypedDict):
    """GIFT's coupons, as the time of one target, and its regret."""

    issued_target_s: float
    redeemed_target_s: float
    compensated_target_s: float
    outstanding_target_s: float
    outstanding_node_hours: float
    paid_node_hours: float
    days: list[GiftDay]


class ClosedOutcome(TypedDict):
    """I/O phases that ended here and in the clock of the closed system, and those that ended later here."""

    phases: int
    late_phases: int


@final
class FluidOutcome(TypedDict):
    """A run at fluid level; ``gift`` under GIFT, ``closed`` under fair finish with that clock."""

    level: Literal["fluid"]
    ended_ns: int
    interrupted: bool
    decisions: int
    jobs_done: int
    node_utilization: float
    io_target_s: float
    effective_bandwidth: float
    effective_bandwidth_of_all: float
    node_hours_done: float
    gift: Optional[GiftOutcome]
    closed: Optional[ClosedOutcome]
    applications: list[ApplicationOutcome]


#: Which of both ``level`` says.
Run = Union[RequestOutcome, FluidOutcome]


class Point(TypedDict):
    """A point of a sweep."""

    point: int
    fingerprint: str
    settings: list[tuple[str, str]]
    outcome: Run


@final
class Sweep(TypedDict):
    """The points of a sweep, in order."""

    points: list[Point]
