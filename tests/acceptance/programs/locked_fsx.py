"""Random operations on one file by several programs at once, each under a lock of what it concerns.

    locked_fsx.py FILE MODEL SEED OPERATIONS

MODEL is a file of the host of all programs, mapped by all of them: what FILE has to be, and how long. Whoever changes FILE
changes it as well, under the same lock, and whoever reads compares.
"""

import fcntl
import mmap
import os
import random
import struct
import sys

SIZE_MAX = 256 << 10
# Longest operation.
LENGTH_MAX = 48 << 10
HEADER = struct.Struct("q")


class Fsx:
    def __init__(self, path, model, seed):
        self.path = path
        self.file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        # To close any descriptor of a file ends all locks of the process: these two stay.
        self.end = os.open(path, os.O_WRONLY | os.O_APPEND)
        with open(model, "r+b") as opened:
            self.model = mmap.mmap(opened.fileno(), HEADER.size + SIZE_MAX)
        self.random = random.Random(seed)

    def size(self):
        return HEADER.unpack_from(self.model)[0]

    def content(self, begin, end):
        return self.model[HEADER.size + begin : HEADER.size + end]

    def change(self, begin, data):
        self.model[HEADER.size + begin : HEADER.size + begin + len(data)] = data

    def resize(self, size):
        """What is cut off is zeros, should the file grow again."""
        old = self.size()
        if size < old:
            self.change(size, bytes(old - size))
        HEADER.pack_into(self.model, 0, size)

    def locked(self, how, begin, length, what):
        """Does `what` under a lock; of all that follows if `length` is 0."""
        fcntl.lockf(self.file, how, length, begin)
        try:
            return what()
        finally:
            fcntl.lockf(self.file, fcntl.LOCK_UN, length, begin)

    def step(self):
        what = self.random.choices(
            ["read", "write", "extend", "append", "cut", "sync", "all"], [30, 30, 10, 6, 6, 2, 2]
        )[0]
        begin = self.random.randrange(SIZE_MAX)
        length = self.random.randrange(1, min(LENGTH_MAX, SIZE_MAX - begin) + 1)
        getattr(self, what)(begin, length)

    def read(self, begin, length):
        def compare():
            found = os.pread(self.file, length, begin)
            wanted = self.content(begin, max(begin, min(begin + length, self.size())))
            self.check("read", begin, found, wanted)

        self.locked(fcntl.LOCK_SH, begin, length, compare)

    def write(self, begin, length):
        """Within the file as it is: who makes it longer has a lock of the rest as well."""

        def write():
            data = self.random.randbytes(max(0, min(length, self.size() - begin)))
            self.put(begin, data)

        self.locked(fcntl.LOCK_EX, begin, length, write)

    def put(self, begin, data):
        if data and os.pwrite(self.file, data, begin) != len(data):
            raise SystemExit(f"a write of {len(data)} bytes at {begin} was short")
        self.change(begin, data)

    def extend(self, begin, length):
        def write():
            self.put(begin, self.random.randbytes(length))
            self.resize(max(self.size(), begin + length))

        self.locked(fcntl.LOCK_EX, 0, 0, write)

    def append(self, _begin, length):
        def append():
            begin = self.size()
            data = self.random.randbytes(min(length, SIZE_MAX - begin))
            if data and os.write(self.end, data) != len(data):
                raise SystemExit(f"an append of {len(data)} bytes was short")
            self.change(begin, data)
            self.resize(begin + len(data))

        self.locked(fcntl.LOCK_EX, 0, 0, append)

    def cut(self, begin, _length):
        def cut():
            os.ftruncate(self.file, begin)
            self.resize(begin)

        self.locked(fcntl.LOCK_EX, 0, 0, cut)

    def sync(self, _begin, _length):
        os.fsync(self.file)

    def all(self, _begin, _length):
        def compare():
            self.check("look at all", 0, os.pread(self.file, SIZE_MAX + 1, 0), self.content(0, self.size()))
            if (size := os.stat(self.path).st_size) != self.size():
                raise SystemExit(f"the file has {size} bytes, and should have {self.size()}")

        self.locked(fcntl.LOCK_SH, 0, 0, compare)

    def check(self, what, begin, found, wanted):
        if found == wanted:
            return
        at = next((at for at, pair in enumerate(zip(found, wanted)) if pair[0] != pair[1]), min(len(found), len(wanted)))
        raise SystemExit(f"{what} of {len(wanted)} bytes at {begin}: {len(found)} bytes came, wrong from {begin + at} on")


def main():
    path, model, seed, operations = sys.argv[1:]
    fsx = Fsx(path, model, int(seed))
    for number in range(int(operations)):
        try:
            fsx.step()
        except SystemExit as wrong:
            raise SystemExit(f"operation {number} of seed {seed}: {wrong}")
    print("done")


main()
