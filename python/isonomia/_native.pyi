from typing import Optional

VERSION: str

class Error(ValueError): ...

def toml_of_json(text: str) -> str: ...
def allocate(file: str, text: Optional[str], scheme: str) -> str: ...
def plan_schedule(file: str, text: Optional[str], policy: str) -> str: ...
def plan_pack(
    file: str,
    text: Optional[str],
    bandwidth: Optional[float],
    swf: tuple[int, int, float],
    nodes: int,
    io_nodes: int,
    sensibility: str,
    policy: str,
) -> str: ...
def shares(spec: str, jobs: list[tuple[str, str, str, int, int]]) -> list[float]: ...
def solve_packing(
    costs: list[float],
    rows: list[list[float]],
    limits: list[float],
    bounds: list[tuple[float, float]],
    weights: Optional[list[float]],
) -> tuple[float, list[float]]: ...
def papers() -> list[tuple[str, str, list[str]]]: ...
def reproduce(paper: str, item: Optional[str], out: str, quick: bool, provenance: str) -> str: ...
def scenario_points(file: str, text: Optional[str]) -> str: ...
def simulate(
    file: str,
    text: Optional[str],
    seed: Optional[int],
    part: tuple[int, int],
    threads: Optional[int],
) -> str: ...
