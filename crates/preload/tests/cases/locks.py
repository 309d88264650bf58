"""Locks between processes: who is refused, who waits, and what ends a lock."""

import errno
import fcntl
import os
import signal
import struct
import subprocess
import sys
import time

FLOCK = "hhqqi4x"


def outcome(call, *arguments):
    try:
        call(*arguments)
        return "got it"
    except OSError as error:
        return errno.errorcode[error.errno]


def elsewhere(code):
    """What another process says, which has the file open as `f`."""
    program = "import errno, fcntl, os, struct; from locks import *; f = open('locked', 'r+b', buffering=0); " + code
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    return (done.stdout + done.stderr[-300:]).strip()


def try_flock(how):
    return elsewhere(f"print(outcome(fcntl.flock, f, fcntl.{how} | fcntl.LOCK_NB))")


def try_bytes(how, length, start):
    return elsewhere(f"print(outcome(fcntl.lockf, f, fcntl.{how} | fcntl.LOCK_NB, {length}, {start}))")


def in_the_way(start, length):
    question = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
    return elsewhere(
        f"kind, whence, start, length, pid = struct.unpack(FLOCK, fcntl.fcntl(f, fcntl.F_GETLK, {question!r}));"
        f"print(kind, start, length, pid == {os.getpid()} or kind == fcntl.F_UNLCK)"
    )


def main():
    f = open("locked", "w+b", buffering=0)
    f.write(b"x" * 100)

    fcntl.flock(f, fcntl.LOCK_SH)
    print("shared:", try_flock("LOCK_SH"), try_flock("LOCK_EX"))
    fcntl.flock(f, fcntl.LOCK_EX)
    print("exclusive:", try_flock("LOCK_SH"), try_flock("LOCK_EX"), "bytes:", try_bytes("LOCK_EX", 0, 0))
    again = open("locked", "r+b", buffering=0)
    print("another open file here:", outcome(fcntl.flock, again, fcntl.LOCK_EX | fcntl.LOCK_NB))
    double = os.dup(f.fileno())
    f.close()
    print("still, by a duplicate:", try_flock("LOCK_SH"))
    go_on, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(told)
        os.read(go_on, 1)
        os._exit(0)
    os.close(double)
    print("still, by a child:", try_flock("LOCK_SH"))
    os.close(told)
    os.waitpid(child, 0)
    print("free:", try_flock("LOCK_EX"))

    fcntl.lockf(again, fcntl.LOCK_EX, 10, 20)
    fcntl.lockf(again, fcntl.LOCK_SH, 10, 40)
    print("bytes:", *(try_bytes(how, 5, start) for how in ("LOCK_SH", "LOCK_EX") for start in (10, 18, 29, 30, 42)))
    fcntl.lockf(again, fcntl.LOCK_UN, 4, 23)
    print("in the way:", in_the_way(0, 0), "|", in_the_way(23, 4), "|", in_the_way(24, 10), "|", in_the_way(60, 0))
    third = open("locked", "rb")
    third.close()
    print("any close gives them up:", try_bytes("LOCK_EX", 0, 0))
    print("read-only:", outcome(fcntl.lockf, open("locked", "rb"), fcntl.LOCK_EX))

    # A killed owner, a waiting one, and a time limit by a signal.
    code = "import fcntl, time; from locks import *; f = open('locked', 'r+b'); fcntl.{}; print('has it', flush=True); time.sleep(60)"
    for how in ("flock(f, fcntl.LOCK_EX)", "lockf(f, fcntl.LOCK_EX)"):
        owner = subprocess.Popen([sys.executable, "-c", code.format(how)], stdout=subprocess.PIPE, text=True)
        print("owner", owner.stdout.readline().strip())
        signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError()))
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            fcntl.flock(again, fcntl.LOCK_EX) if how.startswith("flock") else fcntl.lockf(again, fcntl.LOCK_EX)
            print("too early")
        except TimeoutError:
            print("interrupted")
        owner.kill()
        owner.wait()
        fcntl.flock(again, fcntl.LOCK_EX) if how.startswith("flock") else fcntl.lockf(again, fcntl.LOCK_EX)
        print("after its end")
        fcntl.flock(again, fcntl.LOCK_UN)
        fcntl.lockf(again, fcntl.LOCK_UN)

    # Two processes that would wait for each other.
    fcntl.lockf(again, fcntl.LOCK_EX, 1, 0)
    code = (
        "import fcntl; from locks import *; f = open('locked', 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX, 1, 1);"
        "print('has it', flush=True); print(outcome(fcntl.lockf, f, fcntl.LOCK_EX, 1, 0))"
    )
    other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    other.stdout.readline()
    # Whoever asks last is refused.
    mine = outcome(fcntl.lockf, again, fcntl.LOCK_EX, 1, 1)
    fcntl.lockf(again, fcntl.LOCK_UN)
    print("circle:", sorted([mine, other.stdout.read().strip()]))

    # Who was interrupted waits no more, and is no part of a circle.
    fcntl.lockf(again, fcntl.LOCK_EX, 1, 0)
    code = (
        "import fcntl, signal; from locks import *; f = open('locked', 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX, 1, 1)\n"
        "def stop(*_): raise InterruptedError(errno.EINTR, '')\n"
        "signal.signal(signal.SIGALRM, stop)\n"
        "def wait(): signal.setitimer(signal.ITIMER_REAL, 0.2); fcntl.lockf(f, fcntl.LOCK_EX, 1, 0)\n"
        "print(outcome(wait), flush=True); time.sleep(0.3)"
    )
    other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    print("gives up:", other.stdout.readline().strip())
    print("no circle:", outcome(fcntl.lockf, again, fcntl.LOCK_EX, 1, 1))
    other.wait()


if __name__ == "__main__":
    main()
