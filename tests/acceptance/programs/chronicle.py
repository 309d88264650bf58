"""Works on a cluster while it breaks, and writes down every operation and its answer, outside of it.

    chronicle.py ROLE NAME LIFE SEED PREFIX LOG

A line of the log is a JSON object: `did` with what was done, or `failed` with an errno, after which nothing is known of that file and
it is left alone; `wrong` is what must not be, whatever breaks.
"""

import fcntl
import json
import os
import random
import sys
import time

BLOCK = 4096
FILES_MAX = 12
SIZES = [1, 3, 20, 70]


class Log:
    def __init__(self, path):
        self.file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)

    def write(self, **entry):
        os.write(self.file, (json.dumps(entry | {"at": round(time.monotonic(), 3)}) + "\n").encode())


def content(writer, file, version, blocks):
    return b"".join(f"{writer} {file} {version} {block} ".encode().ljust(64) * (BLOCK // 64) for block in range(blocks))


def read_whole(descriptor):
    parts, offset = [], 0
    while part := os.pread(descriptor, 1 << 20, offset):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)


class Worker:
    def __init__(self, name, life, seed, prefix, log):
        self.name, self.life, self.prefix, self.log = name, life, prefix, log
        self.random = random.Random(f"{seed} {name} {life}")
        self.count = 0

    def next(self):
        self.count += 1
        return f"{self.life}.{self.count}"

    def attempt(self, what, action, **about):
        """Does something; whether it was done."""
        self.log.write(begins=what, **about)
        began = time.monotonic()
        try:
            action()
        except OSError as error:
            self.log.write(failed=what, errno=error.errno, took=round(time.monotonic() - began, 3), **about)
            # A disk that is full stays full for a while.
            time.sleep(0.05)
            return False
        self.log.write(did=what, took=round(time.monotonic() - began, 3), **about)
        return True


class Writer(Worker):
    """Files of its own: made, written as a whole with the next version, renamed, removed; each write is synced."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.directory = f"{self.prefix}/{self.name}"
        # By number: name, version, blocks, and an open descriptor if there is one.
        self.files = {}

    def step(self):
        known = list(self.files)
        choice = self.random.random()
        if len(known) < 3 or choice < 0.2 and len(known) < FILES_MAX:
            return self.make()
        number = self.random.choice(known)
        if choice < 0.7:
            return self.rewrite(number)
        return self.rename(number) if choice < 0.9 else self.remove(number)

    def forget(self, number):
        if (descriptor := self.files.pop(number)[3]) is not None:
            try:
                os.close(descriptor)
            except OSError as error:
                self.log.write(failed="close", errno=error.errno)

    def make(self):
        number, blocks = self.next(), self.random.choice(SIZES)
        path, descriptor = f"{self.directory}/{number}", None

        def act():
            nonlocal descriptor
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644)
            self.put(descriptor, content(self.name, number, 1, blocks))

        done = self.attempt("write", act, file=number, name=number, version=1, blocks=blocks)
        self.files[number] = [number, 1, blocks, descriptor]
        if not done:
            self.forget(number)

    def put(self, descriptor, data):
        done = 0
        while done < len(data):
            done += os.pwrite(descriptor, data[done:], done)
        os.fsync(descriptor)

    def rewrite(self, number):
        file = self.files[number]
        file[1] += 1

        def act():
            if file[3] is None or self.random.random() < 0.3:
                opened, file[3] = file[3], os.open(f"{self.directory}/{file[0]}", os.O_RDWR)
                if opened is not None:
                    os.close(opened)
            self.put(file[3], content(self.name, number, file[1], file[2]))

        if not self.attempt("write", act, file=number, name=file[0], version=file[1], blocks=file[2]):
            self.forget(number)

    def rename(self, number):
        name, to = self.files[number][0], f"{number}-{self.next()}"
        act = lambda: os.rename(f"{self.directory}/{name}", f"{self.directory}/{to}")
        if self.attempt("rename", act, file=number, name=name, to=to):
            self.files[number][0] = to
        else:
            self.forget(number)

    def remove(self, number):
        name = self.files[number][0]
        self.attempt("remove", lambda: os.unlink(f"{self.directory}/{name}"), file=number, name=name)
        self.forget(number)


class Reader(Worker):
    """Reads everybody's files: what it gets must be what somebody wrote there, and never older than before."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.seen = {}
        # Places in files where there was something.
        self.filled = set()

    def step(self):
        writer = f"w{self.random.randrange(4)}"
        directory = f"{self.prefix}/{writer}"
        names = []
        if not self.attempt("list", lambda: names.extend(os.listdir(directory)), name=writer) or not names:
            return
        name = self.random.choice(names)
        found = []
        self.attempt("read", lambda: found.extend(self.read(f"{directory}/{name}")), name=f"{writer}/{name}")
        for _ in range(5):
            # A reader may meet a write half-way, but not again and again.
            wrong = [text for text in map(lambda block: self.wrong(writer, name, *block), enumerate(found)) if text]
            if not wrong:
                return
            time.sleep(0.1)
            found = []
            if not self.attempt("read", lambda: found.extend(self.read(f"{directory}/{name}")), name=f"{writer}/{name}"):
                return
        self.log.write(wrong=wrong[0], name=f"{writer}/{name}")

    def read(self, path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            data = read_whole(descriptor)
        finally:
            os.close(descriptor)
        return [data[at : at + BLOCK] for at in range(0, len(data), BLOCK)]

    @staticmethod
    def is_striped(directory):
        try:
            return bool(os.getxattr(directory, "user.isonomia.layout"))
        except OSError:
            return False

    def wrong(self, writer, name, index, block):
        line = block[:64]
        if not any(block) and (writer, name, index) not in self.filled and self.is_striped(f"{self.prefix}/{writer}"):
            # Of a write that failed there may be parts on some servers, and nothing on others.
            return None
        self.filled.add((writer, name, index))
        try:
            by, file, version, number = line.split()
            if block != line * (BLOCK // 64) or by.decode() != writer or int(number) != index:
                return f"block {index} is {line!r}, or torn"
            before = self.seen.get((writer, file, index), 0)
            if int(version) < before:
                return f"block {index} of {file} is version {int(version)} after {before}"
            self.seen[writer, file, index] = int(version)
        except ValueError:
            return f"block {index} is {line!r}"
        return None


class Renamer(Worker):
    """Files and volumes whose names change all the time: each has one name, and the one that it was given last."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.names, self.volumes = [], []

    def step(self):
        if self.random.random() < 0.15:
            return self.step_in_root()
        if len(self.names) < 5:
            name = f"{self.prefix}/r/{self.next()}"
            act = lambda: os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
            if self.attempt("make", act, name=name):
                self.names.append(name)
            return
        name = self.names.pop(self.random.randrange(len(self.names)))
        if self.random.random() < 0.2 and self.names:
            # Onto one that is there.
            to = self.names.pop()
        else:
            to = f"{self.prefix}/r/{self.next()}"
        if self.attempt("rename", lambda: os.rename(name, to), name=name, to=to):
            self.names.append(to)
            if os.path.lexists(name):
                self.log.write(wrong="the old name is there", name=name)

    def step_in_root(self):
        if len(self.volumes) < 2:
            name = f"{self.prefix}/v{self.next()}"
            if self.attempt("make", lambda: os.mkdir(name), name=name):
                self.volumes.append(name)
            return
        name = self.volumes.pop(0)
        if self.random.random() < 0.5:
            to = f"{self.prefix}/v{self.next()}"
            if self.attempt("rename", lambda: os.rename(name, to), name=name, to=to):
                self.volumes.append(to)
        else:
            self.attempt("remove", lambda: os.rmdir(name), name=name)


class Locker(Worker):
    """Counts in a file that others count in as well, under its lock."""

    def step(self):
        counted = []

        def act():
            descriptor = os.open(f"{self.prefix}/l/counter", os.O_CREAT | os.O_RDWR, 0o644)
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX)
                count = int(os.pread(descriptor, 32, 0) or b"0") + 1
                time.sleep(0.01)
                os.pwrite(descriptor, str(count).encode(), 0)
                os.fsync(descriptor)
                fcntl.lockf(descriptor, fcntl.LOCK_UN)
                counted.append(count)
            finally:
                os.close(descriptor)

        if self.attempt("count", act):
            self.log.write(counted=counted[0])
        time.sleep(0.01)


def main():
    role, name, life, seed, prefix, log = sys.argv[1:]
    roles = {"writer": Writer, "reader": Reader, "renamer": Renamer, "locker": Locker}
    worker = roles[role](name, life, seed, prefix, Log(log))
    while True:
        worker.step()


if __name__ == "__main__":
    main()
