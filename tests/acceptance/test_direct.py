"""Programs that open files with O_DIRECT, on targets of which some go past the page cache of the server's host for them."""

import contextlib
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from gluster import Gluster, can_have_gluster
from service import PREFIX, Case, Mount, isonomia, why_no_mount

# Writes 1 MiB in each of the ways in which a descriptor comes to its flag, and one without it.
WRITE = """
import fcntl, mmap, os, sys
MIB = 1 << 20
data = mmap.mmap(-1, MIB)
def write(name, fd):
    data[:] = name.encode()[:1] * MIB
    pieces = [memoryview(data)[at : at + MIB // 16] for at in range(0, MIB, MIB // 16)]
    assert os.pwritev(fd, pieces if name == "vectored" else [data], 0) == MIB
    os.fsync(fd)
    os.close(fd)
flags = os.O_RDWR | os.O_CREAT
path = lambda name: f"{sys.argv[1]}/{name}"
write("opened", os.open(path("opened"), flags | os.O_DIRECT))
fd = os.open(path("set"), flags)
fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_DIRECT)
write("set", os.dup(fd))
fd = os.open(path("cleared"), flags | os.O_DIRECT)
fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_DIRECT)
write("cleared", fd)
write("plain", os.open(path("plain"), flags))
write("vectored", os.open(path("vectored"), flags | os.O_DIRECT))
for name in ["opened", "set", "cleared", "plain", "vectored"]:
    with open(path(name), "rb") as file:
        # What is read would be in memory afterwards.
        file.seek(MIB - 4096)
        assert file.read() == name.encode()[:1] * 4096, name
"""
MIB = 1 << 20
PAGES = 8 * MIB // 4096
# Half of the pages of a file, in an order that is always the same.
READ_HALF = f"""
import os, random, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
for page in random.Random(1).sample(range({PAGES}), {PAGES // 2}):
    assert len(os.pread(fd, 4096, page * 4096)) == 4096
"""
AT_EMPTY_PATH = 0x1000
STATX_DIOALIGN = 0x2000
DIRECT = {"opened", "set", "vectored"}


def begins_in_memory(path):
    """Whether the host has the beginning of a file in memory."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.preadv(fd, [bytearray(4096)], 0, os.RWF_NOWAIT) == 4096
    except BlockingIOError:
        return False
    finally:
        os.close(fd)


def goes_past_memory(directory):
    """Whether a file system says that it writes whole blocks past the page cache, as the server asks it."""
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        file.write(bytes(4096))
        file.flush()
        told = ctypes.create_string_buffer(256)
        if ctypes.CDLL(None).statx(file.fileno(), b"", AT_EMPTY_PATH, STATX_DIOALIGN, told) != 0:
            return False
        mask, memory, offset = (int.from_bytes(told[at : at + 4], sys.byteorder) for at in (0, 152, 156))
        return mask & STATX_DIOALIGN != 0 and 1 <= memory <= 4096 and 1 <= offset <= 4096


def cached_pages(file):
    """Pages of a file that are in the host's memory; None where the kernel does not tell (`cachestat`, Linux 6.5)."""
    extent, found = (ctypes.c_uint64 * 2)(0, 0), (ctypes.c_uint64 * 5)()
    outcome = ctypes.CDLL(None).syscall(451, file.fileno(), extent, found, 0)
    return found[0] if outcome == 0 else None


class Copies(Case):
    """What holds on any file system."""

    def copy_and_compare(self, server):
        """By fio: each block has a checksum of its own in it."""
        self.needs("fio")
        for engine in ["psync", "posixaio"]:
            with self.subTest(engine=engine):
                server.run(
                    "fio",
                    "--name=direct",
                    f"--filename={PREFIX}/{engine}",
                    "--rw=randrw",
                    "--bs=1M",
                    "--size=64M",
                    "--direct=1",
                    "--verify=crc32c",
                    f"--ioengine={engine}",
                    "--iodepth=8",
                    "--numjobs=1",
                )
        self.assertEqual(server.status()["checksums"]["damaged_total"], 0)


class Direct(Copies):
    def objects(self, server):
        """The objects on a server, by the first bytes of what is in them."""
        found = {}
        for path in Path(server.directory).glob("target-0/objects/*/*.0"):
            with open(path, "rb") as file:
                is_there = begins_in_memory(path)
                found[file.read(1).decode()] = is_there
        return found

    def check(self, server, is_past):
        objects = self.objects(server)
        for name in ["opened", "set", "cleared", "plain", "vectored"]:
            self.assertEqual(objects[name[0]], not (is_past and name in DIRECT), name)

    def test_which_descriptors_write_past_the_page_cache(self):
        for cache in ["auto", "always"]:
            server = self.server("--cache", cache)
            if not goes_past_memory(server.directory):
                self.skipTest("nothing goes past the page cache here")
            with self.subTest(cache=cache):
                server.run("python3", "-c", WRITE, PREFIX)
                self.check(server, cache == "auto")

    def test_and_on_a_mount(self):
        if reason := why_no_mount():
            self.skipTest(reason)
        server = self.server()
        if not goes_past_memory(server.directory):
            self.skipTest("nothing goes past the page cache here")
        mount = Mount(server)
        self.addCleanup(mount.remove)
        mount.start()
        subprocess.run(["python3", "-c", WRITE, mount.place], check=True)
        self.check(server, True)

    def test_copies_that_are_compared_afterwards(self):
        self.copy_and_compare(self.server())


def written_past_memory(server):
    """The first bytes of those objects that a server has open past the page cache. A file system in user space does not tell what is
    in memory."""
    process = Path(f"/proc/{server.process.pid}")
    found = set()
    for link in (process / "fd").iterdir():
        # What is closed meanwhile is none of them.
        with contextlib.suppress(FileNotFoundError):
            path = os.readlink(link)
            lines = (process / "fdinfo" / link.name).read_text().splitlines()
            flags = next(int(line.split()[1], 8) for line in lines if line.startswith("flags:"))
            if "/objects/" in path and flags & os.O_DIRECT:
                found.add(Path(path).read_bytes()[:1].decode())
    return found


@unittest.skipUnless(can_have_gluster(), "GlusterFS is not installed, or this is not root")
class DirectOnGluster(Copies):
    def server(self, *options):
        home = Path(tempfile.mkdtemp(prefix="isonomia-gluster-"))
        self.addCleanup(shutil.rmtree, home)
        self.gluster = Gluster(home / "volume")
        self.addCleanup(self.gluster.remove)
        return super().server(*options, directory=self.gluster.mounts[0] / "files")

    def test_which_descriptors_write_past_the_page_cache(self):
        for cache in ["auto", "always"]:
            server = self.server("--cache", cache)
            with self.subTest(cache=cache):
                server.run("python3", "-c", WRITE, PREFIX)
                self.assertEqual(written_past_memory(server), {name[0] for name in DIRECT} if cache == "auto" else set())

    def test_copies_that_are_compared_afterwards(self):
        self.copy_and_compare(self.server())

    def test_who_reads_half_of_a_file_in_no_order_has_blocks_of_it_read(self):
        """Where the host does not tell a server whether a read would wait, which is another path than that of a disk."""
        server = self.server()
        server.run("dd", "if=/dev/zero", f"of={PREFIX}/file", "bs=1M", "count=8", "conv=fsync")
        files = [path for path in self.gluster.mounts[0].rglob("*") if "objects" in path.parts and path.is_file()]
        longest = max(files, key=lambda path: path.stat().st_size)
        with open(longest, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            if cached_pages(file) != 0:
                self.skipTest("the host does not tell what it has in memory, or keeps it")
            server.run("python3", "-c", READ_HALF, f"{PREFIX}/file")
            self.assertGreater(cached_pages(file), PAGES * 5 // 8)

    def test_the_profile_of_the_volume_is_measured_past_the_page_cache(self):
        self.server()
        command = [isonomia(), "device", "profile", self.gluster.mounts[0] / "files", "--seconds", "3", "--json"]
        profile = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)
        self.assertTrue(profile["is_direct"])
