"""The policy laboratory: try a policy before it touches a machine.

The functions here run the code that the servers and the command line run. What they return is plain data, field by
field what the command prints with ``--json``; :func:`frame` makes a pandas frame of it. :mod:`isonomia.plots` draws it
with matplotlib, :mod:`isonomia.figures` what was reproduced of papers; :mod:`isonomia.policies` is for policies of one's
own; :mod:`isonomia.darshan` reads logs of Darshan; :mod:`isonomia.phases` is for programs that run with the preload
client. Whatever cannot be used raises :class:`Error`.
"""

from ._native import VERSION as __version__
from ._native import Error
from .frames import frame
from .laboratory import allocate, plan_pack, plan_schedule, shares, solve_packing
from .outcomes import FluidOutcome, RequestOutcome, Sweep
from .phases import begin_phase, end_phase, io_phase
from .policies import Engine, by_order, simulate_scheme
from .reproduction import papers, reproduce
from .simulation import join, points, simulate

__all__ = [
    "Engine",
    "Error",
    "FluidOutcome",
    "RequestOutcome",
    "Sweep",
    "allocate",
    "begin_phase",
    "by_order",
    "end_phase",
    "frame",
    "io_phase",
    "__version__",
    "join",
    "papers",
    "plan_pack",
    "plan_schedule",
    "points",
    "reproduce",
    "shares",
    "simulate",
    "simulate_scheme",
    "solve_packing",
]
