"""Files whose bytes are on several servers, used by real programs of several hosts, while servers are killed."""

import json
import os
import random
import shutil
import subprocess
import tempfile
import textwrap
import time
import unittest
from pathlib import Path

import test_cluster
import test_mount
import test_stress
from service import PREFIX, PROGRAM_S, Case, Mount, clean_environment, isonomia, next_line, wait_for, why_no_mount

SERVERS = 4
# Each that cuts the file takes all of its servers.
FSX_OPERATIONS = 4_000
KIB = 1024
MIB = 1024 * KIB

# Does what each line of its input says, and prints what comes of it.
ACTOR = textwrap.dedent("""
    import os, sys
    path = sys.argv[1]
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    appended = os.open(path, os.O_WRONLY | os.O_APPEND)
    for line in sys.stdin:
        what, *numbers = line.split()
        numbers = [int(number) for number in numbers]
        if what == "write":
            offset, length, byte = numbers
            print(os.pwrite(file, bytes([byte]) * length, offset), flush=True)
        elif what == "append":
            length, byte = numbers
            print(os.write(appended, bytes([byte]) * length), flush=True)
        elif what == "cut":
            os.truncate(path, numbers[0]) if numbers[0] % 2 else os.ftruncate(file, numbers[0])
            print(0, flush=True)
        elif what == "sync":
            os.fsync(file)
            print(0, flush=True)
        elif what == "stat":
            found = os.stat(path)
            print(found.st_size, found.st_mtime_ns, flush=True)
        elif what == "read":
            offset, length = numbers
            print(os.pread(file, length, offset).hex(), flush=True)
""")


class Actor:
    """A program on one host that has the file open."""

    def __init__(self, test, member, path=None, timeout_s=60):
        self.process = subprocess.Popen(
            member.command("python3", "-c", ACTOR, path or test.file, timeout_s=timeout_s),
            env=clean_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        test.addCleanup(self.end)

    def end(self):
        self.process.kill()
        self.process.communicate()

    def ask(self, what, *numbers):
        print(what, *numbers, file=self.process.stdin, flush=True)

    def answer(self):
        line = self.process.stdout.readline()
        if not line.endswith("\n"):
            raise AssertionError(f"the program ended with {self.process.wait()}")
        return line.split()

    def do(self, what, *numbers):
        self.ask(what, *numbers)
        return self.answer()

    def size(self):
        return int(self.do("stat")[0])

    def read(self, offset, length):
        found = self.do("read", offset, length)
        return bytes.fromhex(found[0]) if found else b""


def make_volume(member, name):
    """Makes a volume."""
    member.run("mkdir", f"{PREFIX}/{name}")


def objects(cluster, ino):
    """How many objects of a file each server has."""

    def is_object(path):
        return path.suffix != ".sum"

    return [
        sum(map(is_object, member.directory.glob(f"target-*/objects/*/{ino:016x}.*"))) for member in cluster.members
    ]


class StripesCase(Case):
    """Tests that have a directory each."""

    def striped(self, cluster, count=SERVERS, size="64KiB"):
        """Makes this test's directory, whose files are striped."""
        self.directory = f"{PREFIX}/v/{self._testMethodName}"
        self.file = f"{self.directory}/file"
        first = cluster.members[0]
        first.run("mkdir", self.directory)
        first.operate("stripe", "set", "--count", str(count), "--size", size, self.directory)
        return cluster

    def ino(self, member, path=None):
        return int(member.run("stat", "-c", "%i", path or self.file).stdout)


class Stripes(StripesCase):
    """No server ends here."""

    @classmethod
    def setUpClass(cls):
        cls.shared = test_cluster.Cluster(SERVERS)
        cls.addClassCleanup(cls.shared.remove)
        cls.shared.start()
        make_volume(cls.shared.members[0], "v")

    def cluster(self, **how):
        return self.striped(self.shared, **how)

    def test_a_directory_says_how_its_files_are_striped(self):
        cluster = self.cluster()
        first, *_, last = cluster.members
        self.assertEqual(last.operate("stripe", "get", self.directory).stdout, "count=4 size=64KiB\n")
        self.assertEqual(last.operate("stripe", "get", f"{PREFIX}/v").stdout, "default: on the server of the volume\n")
        last.run("sh", "-c", f"mkdir {self.directory}/sub && head -c 1000000 /dev/urandom >{self.directory}/sub/file")
        found = json.loads(first.operate("stripe", "get", "--json", f"{self.directory}/sub/file").stdout)
        self.assertEqual((found["count"], found["size_bytes"], found["is_default"]), (4, 64 * KIB, False))
        self.assertEqual(sorted(found["servers"]), ["io1", "io2", "io3", "io4"])
        ino = self.ino(last, f"{self.directory}/sub/file")
        self.assertEqual(objects(cluster, ino), [1, 1, 1, 1])
        for wrong, words in {
            ("--count", "9"): "--count 9: there are 8 targets (allowed: 1 to 8)",
            ("--count", "0"): "(allowed: whole numbers from 1 to 1024)",
            ("--count", "1", "--servers", "io9"): 'the cluster has no server "io9" (allowed: io[1-4])',
            ("--count", "2", "--size", "5000"): "(allowed: a multiple of 4KiB, to 1TiB)",
            ("--count", "3", "--targets", "16,32"): 'targets="16,32" (allowed: as many different numbers as count says)',
            ("--targets", "16,16"): 'targets="16,16" (allowed: as many different numbers as count says)',
            ("--targets", "16,99"): "the cluster has no such servers or not so many targets",
        }.items():
            refused = first.operate("stripe", "set", *wrong, self.directory, check=False)
            self.assertNotEqual(refused.returncode, 0)
            self.assertIn(words, refused.stderr)
        refused = first.operate("stripe", "set", "--count", "2", f"{self.directory}/sub/file", check=False)
        self.assertIn("1000000 bytes (allowed: a directory, an empty file)", refused.stderr)
        # Copies with their attributes: the directory's is there before its files, or not.
        first.run("cp", "-a", f"{self.directory}/sub", f"{self.directory}-copy")
        first.run("cmp", f"{self.directory}/sub/file", f"{self.directory}-copy/file")
        self.assertEqual(first.operate("stripe", "get", f"{self.directory}-copy").stdout, "count=4 size=64KiB\n")

    def test_a_directory_names_the_very_targets_of_its_files(self):
        first, *_, last = self.cluster().members
        first.operate("stripe", "set", "--targets", "33,16", "--size", "64KiB", self.directory)
        for name in ["one", "two"]:
            last.run("sh", "-c", f"head -c 200000 /dev/zero >{self.directory}/{name}")
            found = json.loads(first.operate("stripe", "get", "--json", f"{self.directory}/{name}").stdout)
            self.assertEqual((found["targets"], found["servers"], found["count"]), ([33, 16], ["io3", "io2"], 2))

    def test_rsync_carries_how_a_directory_is_striped(self):
        if not shutil.which("rsync"):
            self.skipTest("rsync is not installed")
        first, *_, last = self.cluster().members
        copy = f"{self.directory}-copy"
        first.run("sh", "-c", f"mkdir {self.directory}/sub; cd {self.directory}/sub; head -c 1000000 /dev/urandom >file; touch empty")
        for repeat in range(2):
            last.run("rsync", "-aX", f"{self.directory}/", f"{copy}/")
            self.assertEqual(first.operate("stripe", "get", copy).stdout, "count=4 size=64KiB\n")
            self.assertEqual(first.operate("stripe", "get", f"{copy}/sub").stdout, "count=4 size=64KiB\n")
            first.run("cmp", f"{self.directory}/sub/file", f"{copy}/sub/file")
            # What is made there afterwards is striped, the first time that it was brought and the second.
            first.run("sh", "-c", f"head -c 500000 /dev/zero >{copy}/sub/new-{repeat}")
            self.assertEqual(objects(self.shared, self.ino(last, f"{copy}/sub/new-{repeat}")), [1, 1, 1, 1])

    def test_copies_keep_the_layouts_that_they_were_made_with(self):
        """Programs bring attributes after bytes: of a file that has some its layout is neither set nor removed, and nobody complains."""
        self.needs("rsync")
        first, *_, last = self.cluster().members
        plain, copies = f"{self.directory}-plain", f"{self.directory}-copies"
        first.run("sh", "-c", f"mkdir {plain} {copies}; for dir in {self.directory} {plain}; do head -c 300000 /dev/urandom >$dir/file; done")
        layout = lambda path: first.operate("stripe", "get", path).stdout
        default = layout(f"{plain}/file")

        def copied(to, *command):
            done = last.run(*command, to)
            self.assertEqual(done.stderr, "", command)
            first.run("cmp", command[-1], to)

        for number, command in enumerate([["cp", "--preserve=all"], ["cp", "-a"], ["rsync", "-aX"]]):
            copied(f"{copies}/{number}", *command, f"{self.directory}/file")
            self.assertEqual(layout(f"{copies}/{number}"), default, command)
            copied(f"{self.directory}/{number}", *command, f"{plain}/file")
            self.assertIn("count=4 size=64KiB", layout(f"{self.directory}/{number}"), command)
            # Onto one that is there.
            copied(f"{self.directory}/{number}", *command, f"{plain}/file")
        # Of a cluster that has other servers, and what is no layout.
        elsewhere, program = "count=2 size=64KiB servers=io8,io9", "import os, sys; os.setxattr(sys.argv[1], 'user.isonomia.layout', sys.argv[2].encode())"
        last.run("python3", "-c", program, f"{plain}/file", elsewhere)
        for path, value in [(plain, elsewhere), (f"{plain}/file", "striped")]:
            refused = last.run("python3", "-c", program, path, value, check=False)
            self.assertIn("Invalid argument", refused.stderr)
        self.assertEqual(layout(f"{plain}/file"), default)

    def test_programs_of_two_hosts_see_the_same_bytes(self):
        cluster = self.cluster(size="1MiB")
        first, second = cluster.members[0], cluster.members[2]
        script = f"""
            set -e
            head -c 20000001 /dev/urandom >/tmp/isonomia-stripes-$$
            cp /tmp/isonomia-stripes-$$ {self.file}
            md5sum </tmp/isonomia-stripes-$$
            rm /tmp/isonomia-stripes-$$
        """
        written = first.run("sh", "-c", script).stdout
        self.assertEqual(second.run("sh", "-c", f"md5sum <{self.file}").stdout, written)
        self.assertEqual(second.run("sh", "-c", f"cat {self.file} | md5sum").stdout, written)
        self.assertEqual(second.run("stat", "-c", "%s", self.file).stdout.strip(), "20000001")
        ino = self.ino(first)
        self.assertEqual(objects(cluster, ino), [1, 1, 1, 1])
        second.run("rm", self.file)
        wait_for(lambda: objects(cluster, ino) == [0, 0, 0, 0], 30)

    def test_sizes_and_bytes_are_right_once_a_write_has_returned(self):
        cluster = self.cluster()
        actors = [Actor(self, cluster.members[at]) for at in (0, 1, 3)]
        rng, content, seen = random.Random(7), bytearray(), 0
        for repeat in range(300):
            actor, other = rng.sample(actors, 2)
            what = rng.choice(["write", "write", "write", "append", "cut"])
            byte = repeat % 255 + 1
            if what == "write":
                offset, length = rng.randrange(900 * KIB), rng.randrange(1, 300 * KIB)
                self.assertEqual(int(actor.do("write", offset, length, byte)[0]), length)
                content.extend(bytes(max(0, offset - len(content))))
                content[offset : offset + length] = bytes([byte]) * length
            elif what == "append":
                length = rng.randrange(1, 100 * KIB)
                self.assertEqual(int(actor.do("append", length, byte)[0]), length)
                content.extend(bytes([byte]) * length)
            else:
                size = rng.randrange(900 * KIB)
                actor.do("cut", size)
                content = content[:size] + bytes(max(0, size - len(content)))
            size, time = (int(number) for number in other.do("stat"))
            self.assertEqual(size, len(content), f"after {what}, repeat {repeat}")
            self.assertGreaterEqual(time, seen)
            seen = time
            offset, length = rng.randrange(1 + len(content)), rng.randrange(1, 400 * KIB)
            self.assertEqual(other.read(offset, length), content[offset : offset + length], f"repeat {repeat}")
        self.assertEqual(actors[0].read(0, 4 * MIB), content)

    def test_appends_of_two_hosts_do_not_meet(self):
        cluster = self.cluster(size="4KiB")
        actors = [Actor(self, member) for member in cluster.members[:2]]
        for repeat in range(100):
            for number, actor in enumerate(actors):
                actor.ask("append", 3001, number + 1)
            for actor in actors:
                self.assertEqual(actor.answer(), ["3001"])
        data = cluster.members[2].run("cat", self.file, text=False).stdout
        self.assertEqual(len(data), 200 * 3001)
        pieces = [data[at : at + 3001] for at in range(0, len(data), 3001)]
        self.assertTrue(all(piece == piece[:1] * 3001 for piece in pieces))
        self.assertEqual(sum(piece[0] for piece in pieces), 300)

    def test_holes_are_found(self):
        cluster = self.cluster()
        program = textwrap.dedent(f"""
            import os
            file = os.open("{self.file}", os.O_RDWR | os.O_CREAT, 0o644)
            os.pwrite(file, b"x" * 65536, 10 * 65536)
            os.ftruncate(file, 40 * 65536)
            data = os.lseek(file, 0, os.SEEK_DATA)
            hole = os.lseek(file, data, os.SEEK_HOLE)
            print(data // 65536, hole // 65536, os.lseek(file, 0, os.SEEK_HOLE))
            try:
                os.lseek(file, hole, os.SEEK_DATA)
            except OSError as error:
                print(error.strerror)
            print(sum(os.pread(file, 40 * 65536, 0)))
            os.posix_fallocate(file, 39 * 65536, 2 * 65536)
            print(os.fstat(file).st_size // 65536)
        """)
        done = cluster.members[1].run("python3", "-c", program).stdout.splitlines()
        self.assertEqual(done, ["10 11 0", "No such device or address", str(65536 * ord("x")), "41"])

    def test_sparse_files_take_little_and_stay_sparse(self):
        cluster = self.cluster()
        local = Path(tempfile.mkdtemp(prefix="isonomia-local-"))
        self.addCleanup(shutil.rmtree, local, ignore_errors=True)

        def script(directory):
            # An empty file, one with 192 KiB in the middle, and copies of it, on the servers and from and to a local file system.
            return f"""
                set -e; cd {directory}
                truncate -s 1G empty; cp --sparse=auto empty {local}/empty
                truncate -s 64M file; head -c 192K /dev/zero | tr '\\0' x | dd of=file bs=64K seek=500 conv=notrunc status=none
                cp --sparse=auto file auto; cp --sparse=auto file {local}/auto; cp --sparse=always {local}/auto always
                for copy in auto always {local}/auto; do cmp file $copy; done
                for file in empty {local}/empty file auto always {local}/auto; do du -k $file | cut -f 1; done
                du -k --apparent-size empty file auto always {local}/* | cut -f 1 | xargs
                rm -f empty file auto always {local}/*
            """

        def check(done):
            *taken, apparent = done.splitlines()
            self.assertEqual(apparent.split(), ["1048576", "65536", "65536", "65536", "65536", "1048576"])
            # What is written counts at once, and at most twice as much.
            taken = [int(size) for size in taken]
            self.assertTrue(max(taken[:2]) <= 4 and min(taken[2:]) >= 192 and max(taken[2:]) <= 400, taken)

        check(cluster.members[1].run("sh", "-c", script(self.directory)).stdout)
        if why_no_mount():
            return
        mount = Mount(cluster.members[2])
        self.addCleanup(mount.remove)
        place = mount.start().place / "v" / self._testMethodName
        done = subprocess.run(["sh", "-c", script(place)], capture_output=True, text=True, timeout=PROGRAM_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        check(done.stdout)

    def test_fsx_finds_no_divergence(self):
        fsx = test_mount.suite("fsx")
        if not fsx.exists():
            self.skipTest("fsx is not installed: scripts/setup acceptance does it")
        cluster = self.cluster(size="4KiB")
        for seed, member in enumerate(cluster.members[:2]):
            local = Path(tempfile.mkdtemp(prefix="isonomia-local-"))
            self.addCleanup(shutil.rmtree, local, ignore_errors=True)
            configuration = local / "fsx.toml"
            configuration.write_text(test_stress.FSX_CONFIGURATION)
            member.run(fsx, "-q", "-f", configuration, "-P", local, "-N", FSX_OPERATIONS, "-S", seed + 5, f"{self.file}{seed}")

    @unittest.skipIf(why_no_mount(), why_no_mount())
    def test_a_mount_and_a_preloaded_program_share_a_file(self):
        cluster = self.cluster()
        mount = Mount(cluster.members[1])
        self.addCleanup(mount.remove)
        place = mount.start().place / "v" / self._testMethodName
        data = os.urandom(3 * MIB + 5)
        (place / "file").write_bytes(data)
        self.assertEqual(cluster.members[3].run("cat", self.file, text=False).stdout, data)
        cluster.members[3].run("sh", "-c", f"printf more >>{self.file}")
        self.assertEqual((place / "file").read_bytes(), data + b"more")
        os.truncate(place / "file", MIB)
        self.assertEqual(cluster.members[0].run("stat", "-c", "%s", self.file).stdout.strip(), str(MIB))
        layout = os.getxattr(place, "user.isonomia.layout")
        self.assertEqual(layout, b"count=4 size=64KiB")
        ino = (place / "file").stat().st_ino
        (place / "file").unlink()
        wait_for(lambda: objects(cluster, ino) == [0, 0, 0, 0], 30)


class StripesAndDeath(StripesCase):
    """Servers are killed."""

    def cluster(self, **how):
        cluster = test_cluster.Cluster(SERVERS)
        self.addCleanup(cluster.remove)
        make_volume(cluster.start().members[0], "v")
        return self.striped(cluster, **how)

    def test_what_was_synced_survives_the_death_of_each_data_server(self):
        cluster = self.cluster()
        writers = [Actor(self, member, f"{self.directory}/of-{member.name}") for member in cluster.members[:2]]
        contents = [bytearray() for _ in writers]
        rng = random.Random(3)
        for repeat in range(2 * SERVERS):
            victim = cluster.members[repeat % SERVERS]
            for count in range(6):
                for writer, content in zip(writers, contents):
                    offset, length, byte = rng.randrange(MIB), rng.randrange(1, 300 * KIB), rng.randrange(1, 256)
                    writer.ask("write", offset, length, byte)
                    content.extend(bytes(max(0, offset - len(content))))
                    content[offset : offset + length] = bytes([byte]) * length
                if count == 3:
                    victim.kill()
                    victim.start()
                for writer in writers:
                    self.assertGreater(int(writer.answer()[0]), 0)
            for writer in writers:
                self.assertEqual(writer.do("sync"), ["0"])
        for member in cluster.members:
            member.kill()
        for member in cluster.members:
            member.start()
        for member, content in zip(cluster.members, contents):
            data = cluster.members[3].run("cat", f"{self.directory}/of-{member.name}", text=False).stdout
            self.assertEqual(data, content, member.name)

    def test_a_server_that_is_away_is_waited_for_and_nobody_else(self):
        cluster = self.cluster(count=2)
        first = cluster.members[0]
        script = f"head -c 300000 /dev/zero | tr '\\0' x >{self.file}"
        first.run("sh", "-c", script)
        layout = json.loads(first.operate("stripe", "get", "--json", self.file).stdout)
        home = next(
            member for member in cluster.members if "v" in [v["name"] for v in member.status()["cluster"]["volumes"]]
        )
        away = next(m for m in cluster.members if m.name in layout["servers"] and m is not home)
        here = next(m for m in cluster.members if m is not away)
        away.kill()
        refused = here.run("cat", self.file, check=False, timeout_s=2)
        self.assertIn("Connection timed out", refused.stderr)
        refused = here.run("truncate", "-s", "1", self.file, check=False, timeout_s=20)
        self.assertIn("Connection timed out", refused.stderr)
        # Files without stripes there are as ever.
        here.run("sh", "-c", f"echo good >{PREFIX}/v/other && cat {PREFIX}/v/other", timeout_s=5)
        away.start()
        # What was begun is finished.
        wait_for(lambda: here.run("stat", "-c", "%s", self.file).stdout.strip() == "1", 30)
        here.run("sh", "-c", f"printf y >>{self.file}")
        self.assertEqual(here.run("cat", self.file, limit_s=PROGRAM_S).stdout, "xy")


# Writes blocks that say where they are, many stripes at a time, and prints how far it came.
APPENDS = textwrap.dedent("""
    import os, sys
    file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
    at = 0
    while True:
        block = b"".join((at + piece).to_bytes(8, "big") for piece in range(0, 4 << 20, 8))
        os.pwrite(file, block, at)
        at += len(block)
        os.write(1, b"%d\\n" % at)
""")


class StripesAndWriters(StripesCase):
    """Programs are killed."""

    @classmethod
    def setUpClass(cls):
        cls.shared = test_cluster.Cluster(SERVERS, below="/dev/shm")
        cls.addClassCleanup(cls.shared.remove)
        cls.shared.start()
        make_volume(cls.shared.members[0], "v")

    def test_a_writer_that_is_killed_leaves_nothing_behind_the_end(self):
        cluster = self.striped(self.shared)
        rng = random.Random(17)
        for repeat in range(12):
            path = f"{self.file}{repeat}"
            writer = self.program(cluster.members[repeat % SERVERS], "python3", "-c", APPENDS, path, timeout_s=20)
            told = 0
            for _ in range(rng.randrange(1, 6)):
                told = int(next_line(writer))
            time.sleep(rng.uniform(0, 0.004))
            writer.kill()
            told = max([told, *map(int, writer.communicate()[0].split())])
            reader = Actor(self, cluster.members[(repeat + 1) % SERVERS], path)
            size = reader.size()
            self.assertGreaterEqual(size, told)
            found = reader.read(0, size)
            good = b"".join(at.to_bytes(8, "big") for at in range(0, told, 8))
            self.assertEqual(len(found), size)
            self.assertTrue(found[:told] == good, f"repeat {repeat}")
            for at in range(told, size - size % 8, 8):
                self.assertIn(found[at : at + 8], (bytes(8), at.to_bytes(8, "big")), f"repeat {repeat}, at {at}")
            # What was written behind the end, and not told, does not come back.
            longer = size + (8 << 20) + 1
            self.assertEqual(reader.do("cut", longer), ["0"])
            self.assertFalse(any(reader.read(size, 8 << 20)), f"repeat {repeat}: bytes that nobody acknowledged")
            reader.end()


class StripesAndFsck(StripesCase):
    """Servers have objects that no file has any more, or lost some."""

    def cluster(self, **how):
        cluster = test_cluster.Cluster(SERVERS)
        self.addCleanup(cluster.remove)
        first = cluster.start().members[0]
        first.operate("volume", "create", "v", "--on", first.name)
        return self.striped(cluster, **how)

    def fsck(self, code, *arguments):
        command = [isonomia(), "fsck", *map(str, arguments)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PROGRAM_S, env=clean_environment(), stdin=subprocess.DEVNULL
        )
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_a_running_cluster_removes_what_no_file_has_and_names_what_is_lost(self):
        cluster = self.cluster()
        first, second, third, fourth = cluster.members
        first.run("sh", "-c", f"head -c 300000 /dev/zero | tr '\\0' x >{self.file}; sync {self.file}")
        self.assertIn("io4: 1 objects, 0 of no file removed, 0 lost", self.fsck(0, *third.reach()))
        # The server of the volume gets a copy of its metadata from before another file was made.
        copy = cluster.directory / "copy"
        first.operate("backup", str(copy))
        first.run("sh", "-c", f"head -c 300000 /dev/zero | tr '\\0' x >{self.file}2; sync {self.file}2")
        lost = self.ino(first, f"{self.file}2")
        first.stop()
        shutil.copy(first.directory / "metadata/owner", copy / "owner")
        (first.directory / "metadata").rename(cluster.directory / "newer")
        copy.rename(first.directory / "metadata")
        self.fsck(1, "--repair", first.directory)
        away = self.fsck(8, *third.reach())
        self.assertIn("io1: not looked at, nor whether files of its volumes are there", away)
        self.assertIn("io2: 2 objects, 0 of no file removed, 0 lost", away)
        first.start()
        # Nobody waits for the pass that the servers make by themselves.
        outcome = subprocess.run([isonomia(), "fsck", *third.reach()], capture_output=True, text=True, timeout=PROGRAM_S, env=clean_environment())
        self.assertIn(outcome.returncode, (0, 1), outcome.stdout)
        self.assertEqual(objects(cluster, lost)[1:], [0, 0, 0])
        self.assertEqual(objects(cluster, self.ino(first)), [1, 1, 1, 1])
        self.assertIn("io2: 1 objects, 0 of no file removed, 0 lost", self.fsck(0, *third.reach()))
        # An object of a file is lost: while its server runs, and once it is stopped.
        fourth.stop()
        self.fsck(0, fourth.directory)
        gone = next(path for path in fourth.directory.glob("target-*/objects/*/*") if path.suffix != ".sum")
        gone.rename(cluster.directory / "gone")
        self.assertIn("is missing; cannot be repaired", self.fsck(4, fourth.directory))
        self.assertIn("in use by another server", self.fsck(8, second.directory))
        fourth.start()
        named = self.fsck(4, *third.reach())
        self.assertIn(f"io4: object {self.ino(first):016x}.", named)
        self.assertIn("io4: 1 objects, 0 of no file removed, 1 lost", named)
