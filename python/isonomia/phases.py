"""Saying where an I/O phase begins and ends, in a program that runs with the preload client (``isonomia run``).

Under a server's policy ``exclusive`` an application then has the targets for the whole phase, and others have them as soon
as it is over. Without the client nothing happens.
"""

import contextlib
import ctypes
import os
from collections.abc import Iterator

__all__ = ["begin_phase", "end_phase", "io_phase"]


def _call(name: str, types: list[type], *values: float) -> None:
    function = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if function is None:
        return
    function.argtypes, function.restype = types, ctypes.c_int
    if function(*values) != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, os.strerror(errno))


def begin_phase(size: int = 0, remaining_s: float = 0.0) -> None:
    """Says that an I/O phase of the job begins, and returns at once.

    :param size: bytes that are going to be read and written; 0 if that is not known.
    :param remaining_s: seconds that the program would still take alone, this phase included; 0 if that is not known.
    :raises ValueError: if one of them is negative, or no number.
    :raises OSError: if the server cannot be told.
    """
    if not 0 <= size < 2**64 or not remaining_s >= 0:
        raise ValueError(f"size={size!r}, remaining_s={remaining_s!r} (allowed: 0 or more)")
    _call("isonomia_phase_begin", [ctypes.c_uint64, ctypes.c_double], size, remaining_s)


def end_phase() -> None:
    """Says that the phase is over that was begun last. Nothing happens if none was.

    :raises OSError: if the server cannot be told; it notices by itself, though later.
    """
    _call("isonomia_phase_end", [])


@contextlib.contextmanager
def io_phase(size: int = 0, remaining_s: float = 0.0) -> Iterator[None]:
    """A phase that lasts as long as the block. Parameters and exceptions are those of :func:`begin_phase`."""
    begin_phase(size, remaining_s)
    try:
        yield
    finally:
        end_phase()
