"""A server's memory does not grow with the number of its files, but for the database's index of them."""

import os
import shutil
import signal
import tempfile
import textwrap
import time

from service import PREFIX, Case

# More than a server keeps inodes of in memory: beyond that names are kept up to a number, and the index grows.
FILES = 150_000
# Of a file: measured are 40 to 70 bytes.
BYTES_MAX = 200
SLACK_BYTES = 48 << 20
MAKE = textwrap.dedent("""
    import os, sys
    directory, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    os.makedirs(directory, exist_ok=True)
    for number in range(first, first + count):
        os.close(os.open(f"{directory}/{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
""")


class Memory(Case):
    def test_it_does_not_grow_with_the_files_of_a_directory(self):
        # Each change is in memory twice then, but nobody waits for a disk.
        place = tempfile.mkdtemp(prefix="isonomia-acceptance-", dir="/dev/shm")
        self.addCleanup(shutil.rmtree, place, ignore_errors=True)
        server = self.server(directory=f"{place}/files")
        directory = f"{PREFIX}/many"
        resident = []
        for repeat in range(2):
            server.run("python3", "-c", MAKE, directory, repeat * FILES, FILES, limit_s=240)
            resident.append(server.resident_bytes())
        listed = server.run("ls", "-f", directory).stdout
        self.assertEqual(listed.count("\n"), 2 * FILES + 2)
        self.assertLess(resident[1] - resident[0], FILES * BYTES_MAX + SLACK_BYTES, resident)
        server.stop()


if MANY := int(os.environ.get("ISONOMIA_MEMORY_FILES", "0")):

    class MemoryOfMany(Case):
        """`make memory`: how much a server takes with so many files, in directories of a million, after each million."""

        STEP = 1_000_000
        # A safe bound for 10 million, and so much more for each file beyond.
        BOUND_BYTES = (1 << 30) + max(0, MANY - 10_000_000) * 100
        SECONDS_MAX = 3_600

        def test_many_files(self):
            signal.alarm(self.SECONDS_MAX)
            # In memory, as above: a few hundred bytes for each file.
            place = tempfile.mkdtemp(prefix="isonomia-acceptance-", dir="/dev/shm")
            self.addCleanup(shutil.rmtree, place, ignore_errors=True)
            server = self.server(directory=f"{place}/files")
            print(f"\n     files  resident     made in\n{0:10}  {server.resident_bytes() >> 20:4} MiB", flush=True)
            for first in range(0, MANY, self.STEP):
                began = time.monotonic()
                count = min(self.STEP, MANY - first)
                server.run("python3", "-c", MAKE, f"{PREFIX}/many-{first}", first, count, limit_s=self.SECONDS_MAX)
                took = time.monotonic() - began
                print(f"{first + count:10}  {server.resident_bytes() >> 20:4} MiB  {took:8.1f} s", flush=True)
            self.assertLess(server.resident_bytes(), self.BOUND_BYTES)
            server.stop()
